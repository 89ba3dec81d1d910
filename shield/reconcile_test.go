package shield_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
)

func TestReconcile(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	read := func(r *shield.Response) (shield.Verdict, *shield.Response, error) {
		switch r.Status {
		case 200:
			return shield.Happened, &shield.Response{Status: 201, Body: r.Body}, nil
		case 404:
			return shield.NotTried, nil, nil
		case 410:
			return shield.Refused, nil, nil
		case 418:
			return 0, nil, errors.New("not to be read")
		}
		return shield.Unclear, nil, nil
	}
	for _, c := range []struct {
		name   string
		found  int
		method string
		after  time.Duration
		held   bool
		calls  int
		code   semel.Code // of the next delivery
	}{
		{"it happened", 200, "", 0, false, 1, ""},
		{"it was refused", 410, "", 0, false, 1, semel.CodeRejected},
		{"it did not happen", 404, "", 10 * time.Minute, false, 2, ""},
		{"it did not happen yet", 404, "", time.Second, true, 1, semel.CodeHeld},
		{"nobody knows", 202, "", 10 * time.Minute, true, 1, semel.CodeHeld},
		{"the answer can't be read", 418, "", 10 * time.Minute, true, 1, semel.CodeHeld},
		{"the question would be an effect", 200, http.MethodPost, 10 * time.Minute, true, 1, semel.CodeHeld},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := ""
			calls := 0
			p := newProvider(t, nil)
			p.answer = func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					asked = r.URL.Query().Get("key")
					status(c.found)(w, r)
					return
				}
				if calls++; calls == 1 {
					status(500)(w, r)
					return
				}
				status(201)(w, r)
			}
			question := shield.Question{
				Provider: shield.UCP(), Read: read,
				Ask: func(_ context.Context, held semel.Record, ef store.EffectRecord, key string) (*http.Request, error) {
					if held.ID != paymentID() || ef.Name != "charge" {
						t.Errorf("asked about %s of %s", ef.Name, held.ID)
					}
					return http.NewRequest(c.method, p.URL+"?key="+key, nil)
				},
			}
			e, st := engine(t, shield.ReconcileHTTP(map[string]shield.Question{"charge": question}, nil))
			client := &shield.Client{Provider: shield.UCP()}
			_, _, err := pay(t, e, client, p.URL)
			wantCode(t, err, semel.CodeUnknown)
			rec := settleNow(t, e, st, c.after)
			if (rec.Held) != c.held {
				t.Errorf("the record is %s, held: %q, its ledger %+v", rec.State, rec.HeldReason, rec.Effects)
			}
			if c.method == "" && asked != p.got()[0] {
				t.Errorf("asked about %q, the provider got %q", asked, p.got()[0])
			}
			got, _, err := pay(t, e, client, p.URL)
			if c.code != "" {
				wantCode(t, err, c.code)
			} else if must(t, err); got.Status != 201 || string(got.Body) != `{"id":9}` {
				t.Errorf("got %+v", got)
			}
			if calls != c.calls {
				t.Errorf("the provider was called %d times", calls)
			}
		})
	}
}

func TestEffectsWithoutAQuestionStayUnknown(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	reconcile := shield.ReconcileHTTP(nil, nil)
	s, err := reconcile(t.Context(), semel.Record{Effects: []store.EffectRecord{{Name: "charge", State: store.EffectStarted}}})
	if err != nil || len(s.Effects) != 0 || s.Outcome != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}
