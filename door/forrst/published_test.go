package forrst_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestPublishedTranscripts plays the examples of the specification at the time that they
// have, and compares answers byte by byte, but for white space.
func TestPublishedTranscripts(t *testing.T) {
	clause.Proves(t, "FOR-OPT.1", "FOR-DATA.1", "FOR-FIRST.1", "FOR-DUP.1", "FOR-PROC.1", "FOR-CONF.1", "FOR-ID.1", "FOR-ERR.1", "FOR-DATA.2")
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		pause := make(chan struct{})
		w := serving(t, semel.Operation{}, func(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
			<-pause
			return charge(&runs)(ctx, x, r)
		})
		w.store.Advance(time.Until(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC)))
		request := published(t, "request")
		attempt := func(id string) string { return strings.Replace(request, "req_001", id, 1) }
		first := make(chan *said)
		go func() { first <- w.post(request) }()
		synctest.Wait()

		// What the specification's answer doesn't show, its retry extension adds, the status that
		// its table of data has, and what to do next.
		processing := w.post(attempt("req_004"))
		const hint = `,"extensions":[{"urn":"urn:forrst:ext:idempotency","data":{"key":"charge_order456_v1","status":"processing","original_request_id":"req_001"}},{"urn":"urn:forrst:ext:retry","data":{"allowed":true,"strategy":"fixed","after":{"value":1,"unit":"second"},"max_attempts":3}}],"meta":{"action":"wait"}`
		if bare := strings.Replace(processing.body, hint, "", 1); bare != published(t, "processing") || bare == processing.body || processing.status != 409 {
			t.Errorf("while it is processing: %d %s", processing.status, processing.body)
		}
		if processing.header.Get("Retry-After") != "1" {
			t.Error("no Retry-After while it is processing")
		}
		close(pause)
		if got := <-first; got.body != published(t, "processed") || got.status != 200 {
			t.Errorf("the first: %d %s", got.status, got.body)
		}
		if got := w.post(attempt("req_002")); got.body != published(t, "cached") || got.status != 200 {
			t.Errorf("a duplicate: %d %s", got.status, got.body)
		}
		// printf %s '{"amount":100,"currency":"USD","customer_id":"cust_123"}' | sha256sum
		const hash = "sha256:c7666304a7d1a558dc05a1523557717b8dfabaa3e5fcd66ee07d6f66fcd952af"
		conflict := w.post(strings.Replace(attempt("req_003"), "100", "101", 1))
		shown, _ := conflict.Errors[0].Details["original_arguments_hash"].(string)
		bare := strings.Replace(conflict.body, `,"meta":{"action":"new_key"}`, "", 1)
		if got := strings.Replace(bare, shown, "sha256:abc123...", 1); got != published(t, "conflict") || conflict.status != 409 || shown != hash {
			t.Errorf("other arguments: %d %s", conflict.status, conflict.body)
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("executed %d times", n)
		}
	})
}

// TestPublishedForm plays the five example documents under the option that names them: answers
// are theirs byte by byte, but for the white space between tokens, and the conflict has the
// hash where the document has an ellipsis.
func TestPublishedForm(t *testing.T) {
	clause.Proves(t, "FOR-EX.1", "FOR-DATA.2")
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		pause := make(chan struct{})
		w := newWorld(t, forrst.Options{PublishedForm: true, Functions: []forrst.Function{charging(semel.Operation{}, func(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
			<-pause
			return charge(&runs)(ctx, x, r)
		})}})
		w.store.Advance(time.Until(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC)))
		request := published(t, "request")
		first := make(chan *said)
		go func() { first <- w.post(request) }()
		synctest.Wait()
		answers := map[string]*said{"processing": w.post(strings.Replace(request, "req_001", "req_004", 1))}
		close(pause)
		answers["processed"] = <-first
		answers["cached"] = w.post(strings.Replace(request, "req_001", "req_002", 1))
		answers["conflict"] = w.post(strings.Replace(strings.Replace(request, "req_001", "req_003", 1), "100", "101", 1))
		// printf %s '{"amount":100,"currency":"USD","customer_id":"cust_123"}' | sha256sum
		const hash = "sha256:c7666304a7d1a558dc05a1523557717b8dfabaa3e5fcd66ee07d6f66fcd952af"
		for name, status := range map[string]int{"processing": 409, "processed": 200, "cached": 200, "conflict": 409} {
			want := strings.Replace(published(t, name), "sha256:abc123...", hash, 1)
			if got := answers[name]; got.body != want || got.status != status {
				t.Errorf("%s: %d\n%s, want\n%s", name, got.status, got.body, want)
			}
		}
		if after := answers["processing"].header.Get("Retry-After"); after != "1" || runs.Load() != 1 {
			t.Errorf("Retry-After is %q, and it was executed %d times", after, runs.Load())
		}
	})
}

// TestStored looks at what a request leaves in the store.
func TestStored(t *testing.T) {
	clause.Proves(t, "FOR-STORE.1")
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		w := serving(t, semel.Operation{}, charge(&runs))
		w.post(call("req_1", `{"amount":1}`, `{"key":"k"}`)).want(t, 200, "", "processed")
		w.post(strings.Replace(call("req_2", `{"amount":1}`, `{"key":"k","ttl":{"value":2,"unit":"day"}}`), `"version":"1.0.0",`, "", 1)).want(t, 200, "", "processed")
		recs := map[string]semel.Record{}
		for principal := range map[string]bool{"payments.charge@1.0.0": true, "payments.charge@": true} {
			c := semel.Call{Operation: "payments.charge", Principal: "tester", Scope: principal, Key: "k"}
			rec, err := w.engine.Lookup(t.Context(), c.ID(semel.SharePrincipal))
			if err != nil {
				t.Fatal(err)
			}
			// printf %s '{"amount":1}' | sha256sum
			const hash = "sha256:c2b11e657e12fd177359627ca89412018e2274d0873cfbfcf1fc50f685582e9e"
			if rec.Fingerprint.IsZero() || rec.Attributes["arguments_hash"] != hash || !json.Valid(rec.Result.Data) || rec.State != semel.Completed {
				t.Errorf("%+v", rec)
			}
			recs[principal] = rec
		}
		versioned, latest := recs["payments.charge@1.0.0"], recs["payments.charge@"]
		if versioned.ID.Digest() == latest.ID.Digest() {
			t.Error("two versions have one identity")
		}
		if d := versioned.ExpiresAt.Sub(versioned.EndedAt); d != 24*time.Hour {
			t.Errorf("kept for %v by default", d)
		}
		if d := latest.ExpiresAt.Sub(latest.EndedAt); d != 48*time.Hour {
			t.Errorf("kept for %v, where 2 days were asked for", d)
		}
		w.store.Advance(24 * time.Hour)
		w.post(call("req_3", `{"amount":1}`, `{"key":"k"}`)).want(t, 200, "", "processed")
		if runs.Load() != 3 {
			t.Errorf("executed %d times", runs.Load())
		}
	})
}
