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
	"github.com/semelhq/semel/internal/strictclient"
)

// Question is how a provider is asked about one effect.
type Question struct {
	// Provider is the one that the effect's request went to.
	Provider Provider
	// Ask makes the question: a GET or HEAD that finds what the provider knows
	// under the key that it got with the request. Required.
	Ask func(ctx context.Context, held semel.Record, ef semel.EffectRecord, key string) (*http.Request, error)
	// Read says what the answer proves: [Happened], with the answer that the
	// request would have got, which further attempts get; [Refused]; [NotTried],
	// if the request did not arrive; or [Unclear], to be asked again. Required.
	Read func(r *Response) (Verdict, *Response, error)
	// Grace is for how long after the start of the effect the answer that it did
	// not happen is not believed, because the request may be on its way. It must
	// be longer than the request's own timeout. Defaults to 5 minutes.
	Grace time.Duration
}

// DefaultGrace is that of a [Question].
const DefaultGrace = 5 * time.Minute

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// ReconcileHTTP settles held calls by asking providers what became of the effects
// that were started and have no result (IDS-XI.S4). The questions are by the names of
// effects. An effect without one stays unknown, as does one whose provider does not
// answer.
//
// When no effect is open any more the next delivery runs the call again: what
// happened is replayed from the ledger, what did not happen is done.
//
// Redirects are not followed. base makes the connections; nil makes them to the
// questions' URLs, whatever proxy the environment names. Where a whole call is forwarded to an
// upstream, semelproxy.ReconcileHTTP asks that upstream instead.
func ReconcileHTTP(questions map[string]Question, base http.RoundTripper) semel.Reconciler {
	client := &strictclient.Client{Base: base, Timeout: DefaultTimeout, MaxAnswer: maxAnswer}
	return func(ctx context.Context, held semel.Record) (s semel.Settlement, err error) {
		var errs []error
		for _, ef := range held.Effects {
			q, ok := questions[ef.Name]
			if ef.State != semel.EffectStarted || !ok {
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
		return s, nil // with what is known of some; the others are asked about again
	}
}

// ask asks about one effect. Nil means that nothing is known yet.
func (q *Question) ask(ctx context.Context, client *strictclient.Client, held *semel.Record, ef *semel.EffectRecord) (*semel.EffectFinding, time.Duration, error) {
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
	f := &semel.EffectFinding{Name: ef.Name, State: semel.EffectRefuted}
	// The record was written when it was found due, by the store's clock.
	if left := cmp.Or(q.Grace, DefaultGrace) - held.UpdatedAt.Sub(ef.StartedAt); v == NotTried && left > 0 {
		return nil, left, nil
	}
	switch v {
	case Happened:
		data, err := json.Marshal(cmp.Or(result, answer))
		if err != nil {
			return nil, 0, err
		}
		f.State, f.Result = semel.EffectConfirmed, semel.Result{Data: data}
	case Refused:
		f.Failure = &semel.Failure{Code: fmt.Sprintf("status_%d", cmp.Or(result, answer).Status), Message: "the provider refused it, as it said when it was asked"}
	case NotTried:
	default:
		return nil, 0, nil
	}
	return f, 0, nil
}
