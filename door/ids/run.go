package ids

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
)

// upstreamEffect is the ledger's name for the request to an upstream if the declaration names
// no effect.
const upstreamEffect = "semel.upstream"

// run executes a command: by a function, by a request to an upstream, or by a message
// that is delivered once the command is recorded as executed.
func (g *Gateway) run(ctx context.Context, x semel.Execution, d *Derivation) (semel.Result, error) {
	h := &d.Entry.Handler
	if h.Func != "" {
		// A failure is an outcome of the command (IDS-IX.5).
		res, err := g.b.Handlers[h.Func](ctx, x, d)
		return res, semel.Failure(err)
	}
	// An upstream gets the envelope normalised, with its key, but without secrets.
	c := d.Command
	c.IdempotencyKey, c.ConfirmationToken, c.StepUp = d.Key, "", ""
	body, err := json.Marshal(c)
	if err != nil {
		return semel.Result{}, semel.Aborted(err)
	}
	if s := d.Entry.shield(semel.ShieldOutbox); s != nil {
		// The message exists if and only if the command is recorded as executed (IDS-XI.S2).
		const name = "command"
		if err := semel.Send(x, semel.Message{Name: name, Destination: s.Destination, ContentType: "application/json", Payload: body}); err != nil {
			return semel.Result{}, semel.Aborted(err)
		}
		return Done("", map[string]string{"message": name, "destination": s.Destination})
	}
	p := posting{Entry: d.Entry, url: h.URL, body: body}
	if s := d.Entry.shield(semel.ShieldProviderKey); s != nil {
		p.header = s.Header
	}
	return p.send(ctx, x, &g.asker)
}

// posting is a request that does the work of an attempt, as an effect in the ledger.
type posting struct {
	*Entry // the declaration of the attempt's command
	url    string
	body   []byte
	header string // takes the derived key; empty: it isn't sent
}

func (p *posting) send(ctx context.Context, x semel.Execution, a *asker) (semel.Result, error) {
	req, err := a.request(ctx, p.url, p.body)
	if err != nil {
		return semel.Result{}, semel.Aborted(err)
	}
	client := shield.Client{Base: a.base(), Timeout: time.Duration(p.Handler.Timeout), Words: p.words}
	answers, _ := p.Handler.Answers.Parse() // it was checked
	client.Provider.Judge = shield.JudgeBy(judge.Rules{Answers: answers, Financial: p.Financial, RedirectsUnclear: true})
	if p.header != "" {
		client.Provider.Name, client.Provider.Header = p.Name(), p.header
	}
	effect := upstreamEffect
	if i := slices.IndexFunc(p.Shields, func(s ShieldEntry) bool { return len(s.Effects) > 0 }); i >= 0 {
		effect = p.Shields[i].Effects[0]
	}
	if a, ok := x.(*semel.Attempt); ok && a.Record().Policy.Retry && !a.Record().Policy.Ledger {
		x = unledgered{a}
	}
	resp, err := client.Do(ctx, x, effect, req)
	if err != nil {
		return semel.Result{}, err
	}
	if resp.Truncated {
		return semel.Result{Tombstone: true}, nil // part of an outcome isn't one, and can't be redacted
	}
	return semel.Result{Data: resp.Body}, nil
}

// words returns the code and the text with which an upstream explains that it refused or
// failed. Everybody who may read outcomes sees them, so if the answer has a value that the
// declaration redacts, they give only its status: the text may have the value, too. A word that
// means something of its own in responses would make the refusal look like something else.
func (e *Entry) words(r *shield.Response) (code, text string) {
	if r.Truncated {
		return "", ""
	}
	var members struct {
		Outcome json.RawMessage `json:"outcome"`
	}
	_ = json.Unmarshal(r.Body, &members)
	for _, part := range [][]byte{r.Body, members.Outcome} {
		if _, hidden, ok := e.redact(part, nil); hidden || !ok {
			return "", ""
		}
	}
	a := judge.Answer{Status: r.Status, Header: r.Header, Body: r.Body}
	code, text = a.Words()
	if _, own := door.Lookup(semel.Code(code)); own || slices.Contains(ownReasons, code) {
		code = ""
	}
	return code, text
}

// ownReasons are reasons of responses that don't come from a handler. Those of package door
// belong to Semel, too.
var ownReasons = []string{ReasonUnknownOutcome, ReasonNotKept, string(ReasonKey), "abandoned"}

// unledgered is the execution of a command with on_abandoned: retry that doesn't declare its
// effects. Its upstream may then get the command again, with the same key, after an unanswered
// post; an effect without a result in the ledger would forbid that.
//
// Nothing is written before the post, so a crash leaves a lease that ends, and an attempt that
// may be followed by another.
type unledgered struct{ *semel.Attempt }

func (x unledgered) StartEffect(_ context.Context, name string) (store.EffectRecord, error) {
	rec := x.Record()
	return store.EffectRecord{Name: name, Key: semel.EffectKey(rec, name), State: store.EffectStarted, Fence: rec.Fence}, nil
}

func (unledgered) SettleEffect(context.Context, store.EffectFinding) error { return nil }
