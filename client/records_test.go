package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/store"
)

func TestRecordsAreLookedAfterByPeople(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		_, err := c.Lookup(t.Context(), id("k"))
		wantCode(t, err, semel.CodeNotFound)
		for _, key := range []string{"k", `a "quoted" key`, "kéy", "other"} {
			_, err := c.Do(t.Context(), call(key), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
				_, err := x.StartEffect(ctx, "charge")
				return semel.Result{}, err
			})
			wantCode(t, err, semel.CodeUnknown)
			acme := "acme"
			page, err := c.Search(t.Context(), store.Query{Key: key, Tenant: &acme, Operation: "op", Principal: "shop", State: semel.Processing, Held: true, After: 1})
			if must(t, err); len(page.Records) != 1 || page.Records[0].ID != id(key) || !page.Records[0].Held {
				t.Fatalf("searching for %q found %+v", key, page.Records)
			}
			got, err := c.Lookup(t.Context(), id(key))
			must(t, err)
			want, err := s.engine.Lookup(t.Context(), id(key))
			must(t, err)
			// A client leaves empty what only the service knows; everything else is the
			// same.
			want.Revision, want.HeldFrom, want.Origin, want.NextAt, want.Policy = store.Revision{}, store.Revision{}, 0, 0, store.Policy{}
			g, err := json.Marshal(got)
			must(t, err)
			w, err := json.Marshal(want)
			if must(t, err); string(g) != string(w) {
				t.Errorf("got %s\nwant %s", g, w)
			}
		}
		var found []string
		for q := (store.Query{Limit: 1}); ; {
			page, err := c.Search(t.Context(), q)
			must(t, err)
			for _, rec := range page.Records {
				found = append(found, rec.ID.Key)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if slices.Sort(found); len(slices.Compact(found)) != 4 {
			t.Errorf("the pages had %q", found)
		}

		// A word about another attempt is refused, whatever it is.
		for _, s := range []semel.Settlement{{Outcome: semel.DispositionAborted, Fence: 1}, {Outcome: semel.DispositionAbandoned, Fence: 1}} {
			_, err := c.Settle(t.Context(), id("k"), s, "another attempt")
			later(t, err)
		}
		later(t, c.Purge(t.Context(), id("k"), semel.Removal{Reason: "another attempt", Fence: 1}))
		seen, err := c.Lookup(t.Context(), id("k"))
		must(t, err)
		rec, err := c.Settle(t.Context(), id("k"), semel.Settlement{Fence: seen.Fence, Outcome: semel.DispositionCompleted, Result: data("\xff"), Effects: []store.EffectFinding{
			{Name: "charge", State: store.EffectConfirmed, Result: data(`"x"`)},
		}}, "the provider says so")
		if must(t, err); rec.State != semel.Completed || string(rec.Result.Data) != "\xff" || rec.Effects[0].State != store.EffectConfirmed {
			t.Errorf("got %+v", rec)
		}
		_, err = c.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionAborted}, "again")
		wantCode(t, err, semel.CodeIllegalTransition)
		_, err = c.Settle(t.Context(), id("other"), semel.Settlement{Outcome: semel.DispositionAbandoned}, "an effect is open")
		wantCode(t, err, semel.CodeIllegalTransition)
		rec, err = c.Settle(t.Context(), id("kéy"), semel.Settlement{Outcome: semel.DispositionRejected, Failure: &store.Failure{Code: "c", Message: "m"}}, "no")
		if must(t, err); rec.Disposition != semel.DispositionRejected || *rec.Failure != (store.Failure{Code: "c", Message: "m"}) {
			t.Errorf("got %+v", rec)
		}
		pass(time.Second) // a purged record is older than now
		must(t, c.Purge(t.Context(), id("k"), semel.Removal{Fence: seen.Fence, Reason: "a test"}))
		_, err = c.Lookup(t.Context(), id("k"))
		wantCode(t, err, semel.CodeNotFound)
		wantCode(t, c.Purge(t.Context(), id("k"), semel.Removal{Reason: "again"}), semel.CodeNotFound)

		b, err := c.Begin(t.Context(), call("to be released"))
		must(t, err)
		_, err = c.Hold(t.Context(), b.Execution, "")
		must(t, err)
		rec, err = c.Settle(t.Context(), id("to be released"), semel.Settlement{Outcome: semel.DispositionAbandoned}, "try again")
		if must(t, err); rec.Disposition != semel.DispositionAbandoned {
			t.Errorf("got %+v", rec)
		}
		ans, err := c.Do(t.Context(), call("to be released"), answers(data("x"), nil))
		if must(t, err); ans.Record.Attempt != 2 || len(ans.Record.Earlier) != 1 || ans.Record.Earlier[0].Disposition != semel.DispositionAbandoned {
			t.Errorf("got %+v", ans.Record)
		}
	})
}

// later expects the refusal of a word about an attempt that isn't the newest.
func later(t *testing.T, err error) {
	t.Helper()
	if wantCode(t, err, semel.CodeIllegalTransition); !strings.Contains(fmt.Sprint(err), "a later attempt than the one you saw") {
		t.Error(err)
	}
}

// TestAConfirmationNamesWhatWasSeen: the fence that an operator saw reaches the service.
func TestAConfirmationNamesWhatWasSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		must(t, s.engine.Register(semel.Operation{Name: "confirmed", Confirmation: &semel.ConfirmationPolicy{}}))
		c := newClient(t, direct{s.handler})
		k := call("k")
		k.Operation = "confirmed"
		_, err := c.Do(t.Context(), k, answers(data("x"), nil))
		wantCode(t, err, semel.CodeConfirmationRequired)
		page, err := c.Search(t.Context(), store.Query{Operation: "confirmed"})
		must(t, err)
		_, err = c.Confirm(t.Context(), page.Records[0].ID, 1, "", "she called")
		later(t, err)
		_, err = c.Confirm(t.Context(), page.Records[0].ID, page.Records[0].Fence, "", "she called")
		must(t, err)
		_, err = c.Do(t.Context(), k, answers(data("x"), nil))
		must(t, err)
	})
}

func TestDecisionsOfNoRecordAreNotFound(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		_, err := c.Decisions(t.Context(), semel.ID{Tenant: "acme", Principal: "shop", Operation: "op", Key: "none"})
		wantCode(t, err, semel.CodeNotFound)
	})
}

func TestABatchBeginsAndCompletes(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service) {
		c := newClient(t, direct{s.handler})
		var items []client.BatchItem
		for i := range 50 {
			call := call(fmt.Sprint("k", i))
			call.Attributes = store.Attributes{"line": fmt.Sprint(i)}
			items = append(items, client.BatchItem{Begin: &call})
		}
		unknown := semel.Call{Operation: "none", Key: "k"}
		items = append(items, client.BatchItem{Begin: &unknown}, client.BatchItem{Complete: &client.Completion{Execution: "none.1"}})
		results, err := c.Batch(t.Context(), items)
		must(t, err)
		wantCode(t, results[50].Err, semel.CodeUnknownOperation)
		wantCode(t, results[51].Err, semel.CodeNotFound)
		var ends []client.BatchItem
		for i, res := range results[:50] {
			if must(t, res.Err); res.Begun.Decision != semel.Execute || res.Begun.Record.ID.Key != fmt.Sprint("k", i) || res.Begun.Record.Attributes["line"] != fmt.Sprint(i) {
				t.Fatalf("item %d got %+v", i, res)
			}
			ends = append(ends, client.BatchItem{Complete: &client.Completion{Execution: res.Begun.Execution, Result: data(fmt.Sprint("r", i))}})
		}
		for range 2 {
			results, err = c.Batch(t.Context(), ends)
			must(t, err)
			for i, res := range results {
				if must(t, res.Err); string(res.Record.Result.Data) != fmt.Sprint("r", i) {
					t.Errorf("item %d got %+v", i, res.Record)
				}
			}
		}
		results, err = c.Batch(t.Context(), items[:1])
		if must(t, err); results[0].Begun.Decision != semel.Replay || string(results[0].Begun.Record.Result.Data) != "r0" {
			t.Errorf("got %+v", results[0])
		}
		for name, bad := range map[string][]client.BatchItem{
			"one call twice": {items[0], items[0]}, "an empty item": {{}}, "too many": slices.Repeat(ends[:1], 501),
		} {
			_, err := c.Batch(t.Context(), bad)
			if e := wantCode(t, err, semel.CodeInvalidCall); e == nil {
				t.Error(name)
			}
		}
	})
}

func TestDecisionsAreWatchedAcrossBrokenConnections(t *testing.T) {
	s := newService(t, semel.Operation{Name: "op"})
	srv := httptest.NewServer(s.handler)
	defer srv.Close()
	c, err := client.New(srv.URL, &client.Options{Token: token})
	must(t, err)
	_, err = c.Do(t.Context(), call("k0"), answers(data("x"), nil))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	n, last := 0, ""
	// A number before all others: there is a gap first.
	for ev, err := range c.Watch(ctx, "0", client.WatchFilter{Operation: "op"}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.ID == last || !json.Valid(ev.Data) {
			t.Errorf("got %+v after %s", ev, last)
		}
		last = ev.ID
		if got = append(got, ev.Type); len(got) == 7 {
			break
		}
		if ev.Type == "ended" {
			srv.CloseClientConnections()
			n++
			_, err := c.Do(t.Context(), call(fmt.Sprint("k", n)), answers(data("x"), nil))
			must(t, err)
		}
	}
	if want := []string{"gap", "decided", "ended", "decided", "ended", "decided", "ended"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	cancel()
	for _, err := range c.Watch(ctx, "", client.WatchFilter{}) {
		if err != context.Canceled {
			t.Errorf("got %v", err)
		}
	}
	for _, err := range c.Watch(t.Context(), "", client.WatchFilter{Tenant: "other"}) {
		wantCode(t, err, semel.CodeForbidden)
	}
	stranger, err := client.New(srv.URL, nil)
	must(t, err)
	for _, err := range stranger.Watch(t.Context(), "", client.WatchFilter{}) {
		wantCode(t, err, client.CodeUnauthorized)
	}
}
