package shield_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
)

// What a provider does, and what follows from it.
func TestAnswersAreJudged(t *testing.T) {
	clause.Proves(t, "IDS-XI.S1", "IDS-XI.S3", "IDS-XIII.1")
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	cut := func(write string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, write)
				_ = conn.Close()
			}
		}
	}
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		code   semel.Code
		effect store.EffectState
		again  int // how often the provider is called when the call is delivered again
	}{
		{"201", status(201), "", store.EffectConfirmed, 1},
		{"204", status(204), "", store.EffectConfirmed, 1},
		{"400 is a refusal", status(400), semel.CodeRejected, store.EffectRefuted, 1},
		{"402 is a refusal", status(402), semel.CodeRejected, store.EffectRefuted, 1},
		{"422 is a refusal", status(422), semel.CodeRejected, store.EffectRefuted, 1},
		{"401 was not tried", status(401), semel.CodeAborted, store.EffectRefuted, 2},
		{"429 was not tried", status(429), semel.CodeAborted, store.EffectRefuted, 2},
		{"409 proves nothing", status(409), semel.CodeUnknown, store.EffectStarted, 1},
		{"408 proves nothing", status(408), semel.CodeUnknown, store.EffectStarted, 1},
		{"500 after the effect", status(500), semel.CodeUnknown, store.EffectStarted, 1},
		{"503 proves nothing", status(503), semel.CodeUnknown, store.EffectStarted, 1},
		{"403 is a refusal", status(403), semel.CodeRejected, store.EffectRefuted, 1},
		{"419 proves nothing", status(419), semel.CodeUnknown, store.EffectStarted, 1},
		{"a redirect is not followed", status(303), semel.CodeUnknown, store.EffectStarted, 1},
		{"a redirect that says not here", status(307), semel.CodeAborted, store.EffectRefuted, 2},
		{"it does not answer in time", hang, semel.CodeUnknown, store.EffectStarted, 1},
		{"the connection breaks", cut(""), semel.CodeUnknown, store.EffectStarted, 1},
		{"the answer breaks off", cut("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), semel.CodeUnknown, store.EffectStarted, 1},
		{"the answer is none", cut("SSH-2.0\r\n\r\n"), semel.CodeUnknown, store.EffectStarted, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProvider(t, c.answer)
			e, _ := engine(t, nil)
			client := &shield.Client{Provider: shield.Stripe(), Timeout: 200 * time.Millisecond}
			_, _, err := pay(t, e, client, p.URL)
			if c.code == "" {
				must(t, err)
			} else {
				wantCode(t, err, c.code)
				if strings.Contains(err.Error(), "127.0.0.1/") || strings.Contains(err.Error(), `"id"`) {
					t.Errorf("the error tells too much: %v", err)
				}
			}
			rec, err := e.Lookup(t.Context(), paymentID())
			must(t, err)
			if got := rec.Effects[0]; got.State != c.effect {
				t.Errorf("the ledger says %+v", got)
			}
			_, _, _ = pay(t, e, client, p.URL)
			keys := p.got()
			if len(keys) != c.again {
				t.Fatalf("the provider was called %d times", len(keys))
			}
			for _, k := range keys {
				if k != rec.Effects[0].Key || k == "" {
					t.Errorf("it got the key %q, the ledger has %q", k, rec.Effects[0].Key)
				}
			}
		})
	}
}

func TestNothingSentIsAborted(t *testing.T) {
	clause.Proves(t, "IDS-XI.S3")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	url := "http://" + l.Addr().String()
	must(t, l.Close()) // nobody listens there
	e, _ := engine(t, nil)
	_, _, err = pay(t, e, &shield.Client{}, url)
	wantCode(t, err, semel.CodeAborted)

	// Nor was anything sent where the key could not be put into the request.
	client := &shield.Client{Provider: shield.Provider{Field: "amount"}}
	_, _, err = pay(t, e, client, url)
	wantCode(t, err, semel.CodeAborted)
}

func TestTheIntentIsDurableBeforeTheFirstByte(t *testing.T) {
	clause.Proves(t, "IDS-XI.S3")
	var e *semel.Engine
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		rec, err := e.Lookup(t.Context(), paymentID())
		if err != nil || len(rec.Effects) != 1 || rec.Effects[0].State != store.EffectStarted {
			t.Errorf("when the provider is called the ledger says %+v, %v", rec.Effects, err)
		}
		status(201)(w, nil)
	})
	e, _ = engine(t, nil)
	_, _, err := pay(t, e, &shield.Client{}, p.URL)
	must(t, err)
	if n := len(p.got()); n != 1 {
		t.Errorf("called %d times", n)
	}
}

func TestAFurtherAttemptGetsTheRecordedAnswer(t *testing.T) {
	clause.Proves(t, "IDS-XI.S3")
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Secret", "s")
		w.Header().Set("Location", "/charges/9")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	})
	e, _ := engine(t, nil)
	client := &shield.Client{Provider: shield.Adyen(), MaxBody: 10, Keep: []string{"location"}}
	var got []string
	for n := range 2 {
		_, err := e.Do(t.Context(), payment, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			r, err := client.Do(ctx, x, "charge", post(t, p.URL, "application/json", "{}"))
			if err != nil {
				return semel.Result{}, err
			}
			text, err := json.Marshal(r)
			if err != nil {
				return semel.Result{}, err
			}
			got = append(got, string(text))
			if r.Status != 201 || !r.Truncated || len(r.Body) != 10 || r.Header.Get("Location") == "" || r.Header.Get("X-Secret") != "" || r.Key != p.got()[0] {
				t.Errorf("got %+v", r)
			}
			if n == 0 {
				return semel.Result{}, semel.Aborted(errors.New("later"))
			}
			return semel.Result{}, nil
		})
		if n == 1 {
			must(t, err)
		}
	}
	if len(got) != 2 || got[0] != got[1] || len(p.got()) != 1 {
		t.Errorf("%d calls; answers %v", len(p.got()), got)
	}
}

func TestAnEffectThatIsNotDeclaredIsNotSent(t *testing.T) {
	clause.Proves(t, "IDS-XI.1")
	p := newProvider(t, status(201))
	e, _ := engine(t, nil)
	_, err := e.Do(t.Context(), payment, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		_, err := shield.Do(ctx, x, "other", post(t, p.URL, "application/json", "{}"))
		return semel.Result{}, err
	})
	if err == nil || len(p.got()) != 0 {
		t.Errorf("got %v, %d requests", err, len(p.got()))
	}
	for _, op := range []semel.Operation{
		{Name: "a", Class: semel.Shielded},
		{Name: "a", Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldLedger}},
		{Name: "a", Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldReconcile}},
	} {
		wantCode(t, op.Validate(), semel.CodeInvalidOperation)
	}
}

func TestAnAttemptThatIsOverSendsNothing(t *testing.T) {
	p := newProvider(t, status(201))
	e, _ := engine(t, nil)
	_, err := e.Do(t.Context(), payment, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err := shield.Do(ctx, x, "charge", post(t, p.URL, "application/json", "{}"))
		return semel.Result{}, err
	})
	if wantCode(t, err, semel.CodeAborted); len(p.got()) != 0 {
		t.Errorf("%d requests", len(p.got()))
	}
}

// The text of a failure is shown to callers, who need not know where a provider is.
func TestAddressesAreNotTold(t *testing.T) {
	for name, url := range map[string]string{
		"an address":  "http://127.0.0.1:1/secret",
		"a name":      "http://provider.invalid/secret",
		"a bad proxy": "http://[::1%25lo]:1/secret",
	} {
		t.Run(name+" is in no error", func(t *testing.T) {
			e, _ := engine(t, nil)
			_, ans, err := pay(t, e, &shield.Client{}, url)
			wantCode(t, err, semel.CodeAborted)
			for _, text := range []string{err.Error(), ans.Record.Failure.Message} {
				if strings.Contains(text, "127.0.0.1") || strings.Contains(text, "::1") || strings.Contains(text, "provider.invalid") || strings.Contains(text, "secret") {
					t.Error(text)
				}
			}
		})
	}
}
