package shield

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// Question says how to ask a provider about one effect.
type Question struct {
	// Provider is the one that the effect's request went to.
	Provider Provider
	// Ask makes the question: a GET or HEAD that looks up the key that the provider
	// got with the request. Required.
	Ask func(ctx context.Context, held semel.Record, ef store.EffectRecord, key string) (*http.Request, error)
	// Read says what the answer proves: [Happened], with the answer that the
	// request would have got, which further attempts get; [Refused]; [NotTried],
	// if the request didn't arrive; or [Unclear], to ask again. Required.
	Read func(r *Response) (Verdict, *Response, error)
	// Grace is how long after the start of the effect [NotTried] is ignored, because
	// the request may still be on its way. It must be longer than the request's own
	// timeout. Defaults to 5 minutes.
	Grace time.Duration
}

// DefaultGrace is the default of [Question].Grace.
const DefaultGrace = 5 * time.Minute

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 1 << 20

// ReconcileHTTP settles held calls by asking providers about effects that were started
// and have no result (IDS-XI.S4). questions has the questions by the names of effects. An
// effect without one stays unknown, and so does one if the provider doesn't answer.
//
// Once no effect is open, the next delivery runs the call again: effects that happened
// are replayed from the ledger, the others are done.
//
// Redirects aren't followed. base makes the connections; nil connects to the questions'
// URLs directly and ignores proxies of the environment. If a whole call is forwarded to
// an upstream, use semelproxy.ReconcileHTTP, which asks that upstream.
func ReconcileHTTP(questions map[string]Question, base http.RoundTripper) semel.Reconciler {
	client := &safehttp.Client{Base: base, Timeout: DefaultTimeout, MaxAnswer: maxAnswer}
	return func(ctx context.Context, held semel.Record) (s semel.Settlement, err error) {
		var errs []error
		for _, ef := range held.Effects {
			q, ok := questions[ef.Name]
			if ef.State != store.EffectStarted || !ok {
				continue
			}
			f, again, err := q.ask(ctx, client, &held, &ef)
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("shield: ask about effect %s: %w", ef.Name, err))
			case f != nil:
				s.Effects = append(s.Effects, *f)
			case again > 0:
				s.RetryAfter = max(s.RetryAfter, again)
			}
		}
		if len(s.Effects) == 0 && len(errs) > 0 {
			return semel.Settlement{}, errors.Join(errs...)
		}
		return s, nil // with the known effects; ask about the others again
	}
}

// ask asks about one effect. Nil means that its result is still unknown.
func (q *Question) ask(ctx context.Context, client *safehttp.Client, held *semel.Record, ef *store.EffectRecord) (*store.EffectFinding, time.Duration, error) {
	r, err := q.Ask(ctx, *held, *ef, q.Provider.Key(ef.Key))
	if err != nil {
		return nil, 0, err
	}
	if r.Method != "" && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, 0, fmt.Errorf("a question is a GET or a HEAD, not a %s, which could repeat the effect", r.Method)
	}
	got, err := client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, 0, hide(err)
	}
	answer := &Response{Status: got.Status, Header: keep(got.Header, "Location"), Body: got.Body}
	v, result, err := q.Read(answer)
	if err != nil {
		return nil, 0, err
	}
	f := &store.EffectFinding{Name: ef.Name, State: store.EffectRefuted}
	// The record was last written when it was last due, by the store's clock.
	if left := cmp.Or(q.Grace, DefaultGrace) - held.UpdatedAt.Sub(ef.StartedAt); v == NotTried && left > 0 {
		return nil, left, nil
	}
	switch v {
	case Happened:
		data, err := json.Marshal(cmp.Or(result, answer))
		if err != nil {
			return nil, 0, err
		}
		f.State, f.Result = store.EffectConfirmed, semel.Result{Data: data}
	case Refused:
		f.Failure = &store.Failure{Code: fmt.Sprintf("status_%d", cmp.Or(result, answer).Status), Message: "the provider refused it, as it said when it was asked"}
	case NotTried, Failed:
	default:
		return nil, 0, nil
	}
	return f, 0, nil
}
