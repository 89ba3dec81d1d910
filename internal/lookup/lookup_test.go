package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/reference"
	"github.com/semelhq/semel/internal/tally"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

const (
	trace    = "4bf92f3577b34da6a3ce929d0e0e4736"
	activity = "https://there.example/a/2"
)

// payment is a call that has every kind of name.
func payment(tenant string) *store.Record {
	id := store.ID{Tenant: tenant, Principal: "shop", Operation: "pay", Key: "pay-9911"}
	rec := call(id, 0)
	rec.Attributes = store.Attributes{
		"order": "9911", "actor": activity, store.AttributeTrace: "00-" + trace + "-00f067aa0ba902b7-01",
		store.AttributeCommandID: "cmd-1", store.AttributeRequestID: "req-1", store.AttributeCorrelationID: "cor-1", store.AttributeEventID: "evt-1", store.AttributeTransactionID: "pi_1",
	}
	rec.Effects = []store.EffectRecord{{Name: "charge", Key: "eff-1", State: store.EffectConfirmed, Fence: 1, StartedAt: rec.StartedAt, SettledAt: rec.EndedAt}}
	rec.Outbox = []store.Message{{ID: "msg-1", Name: "mail", Destination: "m", State: store.MessageDelivered, CreatedAt: rec.EndedAt}}
	return rec
}

var epoch = store.InstantOf(time.Now().Add(-time.Minute))

func call(id store.ID, n int) *store.Record {
	at := epoch.Add(time.Duration(n) * time.Millisecond)
	rec := &store.Record{
		ID: id, State: store.Completed, Disposition: store.DispositionCompleted, Principal: id.Principal, Attempt: 1, Fence: 1, Origin: 1, Holder: "node",
		CreatedAt: at, StartedAt: at, UpdatedAt: at, EndedAt: at, ExpiresAt: at.Add(24 * time.Hour),
	}
	digest := id.Digest()
	copy(rec.Revision[:], digest[:])
	return rec
}

func put(t *testing.T, st store.Store, recs ...*store.Record) {
	t.Helper()
	for _, rec := range recs {
		if _, ok, err := st.Apply(t.Context(), store.Write{Record: rec}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
}

// later puts calls of another operation, without the names of attributes that others have.
func later(t *testing.T, st store.Store, n int) {
	t.Helper()
	var work sync.WaitGroup
	for c := range 32 {
		work.Go(func() {
			for i := c; i < n; i += 32 {
				put(t, st, call(store.ID{Tenant: "acme", Principal: "shop", Operation: "carts", Key: fmt.Sprint("cart-", i)}, 1+i))
			}
		})
	}
	work.Wait()
}

func engineOn(t *testing.T, st store.Store, opts *semel.Options) *semel.Engine {
	t.Helper()
	engine, err := semel.New(st, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	return engine
}

// all follows the pages of a search to its end.
func all(t *testing.T, f *Finder, text string) (found []Found, last *Answer) {
	t.Helper()
	for cursor := ""; ; cursor = last.Next {
		var err error
		if last, err = f.Find(t.Context(), text, cursor); err != nil {
			t.Fatal(err)
		}
		for _, one := range last.Found {
			if !slices.ContainsFunc(found, func(f Found) bool { return f.Record.ID == one.Record.ID }) {
				found = append(found, one)
			}
		}
		if last.Next == "" {
			return found, last
		}
	}
}

func stores(t *testing.T) map[string]store.Store {
	embedded, err := pebblestore.Open("store", &pebblestore.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = embedded.Close() })
	return map[string]store.Store{"memory": memstore.New(), "embedded": embedded}
}

// TestEveryNameLeadsToItsCall: whatever somebody has, after 1,500 later calls, in their own tenant
// only.
func TestEveryNameLeadsToItsCall(t *testing.T) {
	for kind, st := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			rec := payment("acme")
			put(t, st, rec, payment("evil"))
			later(t, st, 1500)
			counts := tally.New(st)
			counts.Answered(semel.Delivered{ID: rec.ID, Decision: semel.Replay, Attempt: 1, Request: "again-1", Status: 200})
			counts.Flush(t.Context())
			engine := engineOn(t, st, nil)
			for text, by := range map[string]string{
				"pay-9911": byKey, "pay-99*": byKey, rec.ID.Encode(): byRecord, rec.ID.Encode() + ".1": byExecution,
				reference.Of(rec.ID): byReference, CallURN + reference.Of(rec.ID): byReference, "https://api.example/status/" + reference.Of(rec.ID): byReference,
				rec.ID.String(): byLog, "cmd-1": "command_id", "req-1": "request_id", "cor-1": "correlation_id", "evt-1": "event_id", "pi_1": "transaction_id",
				"order=9911": "attribute:order", "order=99*": "attribute:order", "9911": "value:order", activity: "value:actor",
				trace: byTrace, "msg-1": byMessage, "eff-1": byEffect, "again-1": byDelivery,
			} {
				f := &Finder{Records: engine, Tenant: new("acme")}
				found, last := all(t, f, text)
				if len(found) != 1 || found[0].Record.ID != rec.ID || !slices.Contains(found[0].By, by) || !last.Complete {
					t.Errorf("%s, by %s: found %v, complete %t", text, by, found, last.Complete)
				}
				f.Tenant = new("nobody")
				if found, last := all(t, f, text); len(found) != 0 || !last.Complete {
					t.Errorf("%s: a stranger finds %v, complete %t", text, found, last.Complete)
				}
			}
		})
	}
}

// TestNoNameHidesAnother: a key that is the number of an order doesn't hide the order's calls.
func TestNoNameHidesAnother(t *testing.T) {
	for kind, st := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			again := payment("acme")
			again.ID.Key = "pay-9911-again"
			again.Revision[0]++
			put(t, st, payment("acme"), again, call(store.ID{Tenant: "acme", Operation: "carts", Key: "9911"}, 5))
			found, last := all(t, &Finder{Records: engineOn(t, st, nil), Attributes: []string{"order"}}, "9911")
			if len(found) != 3 || !last.Complete || found[0].Record.ID.Key != "9911" || found[0].By[0] != byKey || Sure(found[1].By) {
				t.Fatalf("found %v", found)
			}
			if want := "9911: 3 calls, pay executed twice: "; !strings.HasPrefix(last.Verdict, want) {
				t.Errorf("the verdict is %q", last.Verdict)
			}
		})
	}
}

// TestASearchEndsWithItsPage: what a page leaves, the next one finds, and until then nobody says
// that there is no call.
func TestASearchEndsWithItsPage(t *testing.T) {
	for kind, st := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			put(t, st, payment("acme"))
			later(t, st, 1500)
			f := &Finder{Records: engineOn(t, st, nil)}
			little := paging.With(t.Context(), 1, time.Hour)
			for text, want := range map[string]int{activity: 1, "eff-1": 1, "order=9911": 1, "nothing": 0} {
				var last *Answer
				ids, pages := map[store.ID]bool{}, 0
				for cursor := ""; pages == 0 || last.Next != ""; cursor = last.Next {
					if last != nil && (last.Complete || len(last.Found) == 0 && last.Verdict != "") {
						t.Fatalf("%s: page %d says %q, complete %t", text, pages, last.Verdict, last.Complete)
					}
					var err error
					if last, err = f.Find(little, text, cursor); err != nil {
						t.Fatal(err)
					}
					pages++
					for i := range last.Found {
						ids[last.Found[i].Record.ID] = true
					}
				}
				if len(ids) != want || !last.Complete || pages < 5 {
					t.Errorf("%s: found %d in %d pages, complete %t", text, len(ids), pages, last.Complete)
				}
			}
			for _, cursor := range []string{"x", "9:", "-1:", "0", "4!", "01:"} {
				if _, err := f.Find(t.Context(), "x", cursor); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
					t.Errorf("the cursor %s gives %v", cursor, err)
				}
			}
		})
	}
}

// unreadable is an engine some of whose records are damaged.
type unreadable struct{ *semel.Engine }

func (u unreadable) Search(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := u.Engine.Search(ctx, q)
	page.Unreadable = []error{errors.New("damaged")}
	return page, err
}

func TestADamagedRecordMayHaveTheName(t *testing.T) {
	st := memstore.New()
	put(t, st, payment("acme"))
	if found, last := all(t, &Finder{Records: unreadable{engineOn(t, st, nil)}}, "nothing"); len(found) > 0 || last.Complete || last.Verdict != "" {
		t.Errorf("found %v, complete %t: %s", found, last.Complete, last.Verdict)
	}
}

// TestTheEvidenceLogKnowsMore: ids of duplicates, and calls whose records are gone, of the
// searcher's own tenant.
func TestTheEvidenceLogKnowsMore(t *testing.T) {
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	st := memstore.New()
	log, err := evidence.New(st, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine := engineOn(t, st, &semel.Options{Witness: log, Operations: []semel.Operation{{Name: "pay", Evidence: semel.EvidenceDurable}}})
	t.Cleanup(func() { _ = log.Close(context.Background()) })
	deliver := func(scope, key, request string) *semel.Record {
		ans, err := engine.Do(t.Context(), semel.Call{Tenant: "acme", Principal: "shop", Scope: scope, Operation: "pay", Key: key, Attributes: store.Attributes{store.AttributeRequestID: request}},
			func(context.Context, semel.Execution) (semel.Result, error) {
				return semel.Result{Data: []byte("1")}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return ans.Record
	}
	for _, scope := range []string{"", "session=s1"} {
		deliver(scope, "pay-1", "req-1")
		deliver(scope, "pay-1", "again-1"+scope)
	}
	gone := deliver("", "pay-2", "req-2")
	if err := engine.Purge(t.Context(), gone.ID, semel.Removal{Reason: "asked"}); err != nil {
		t.Fatal(err)
	}
	if err := log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &Finder{Records: engine, Tenant: new("acme"), Log: log}
	for _, text := range []string{"again-1", "again-1session=s1"} {
		if found, _ := all(t, f, text); len(found) != 1 || !slices.Contains(found[0].By, byEvidence) || found[0].Record.ID.Key != "pay-1" {
			t.Errorf("%s: found %v", text, found)
		}
	}
	for _, text := range []string{"pay-2", "req-2"} {
		a, err := f.Find(t.Context(), text, "")
		if err != nil || len(a.Found) > 0 || len(a.Gone) != 1 || a.Gone[0] != gone.ID || strings.Contains(a.Verdict, "no call") {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
	f.Tenant = new("evil")
	if found, last := all(t, f, "pay-2"); len(found)+len(last.Gone) > 0 || last.Verdict != "pay-2: no call" {
		t.Errorf("a stranger finds %v, %v: %s", found, last.Gone, last.Verdict)
	}
}

// TestAllGoesOnUntilItIsSure: who changes a call doesn't go by the value of an attribute, and
// wants to know of every other call with the name; who looks gets the first.
func TestAllGoesOnUntilItIsSure(t *testing.T) {
	st := memstore.New()
	again := payment("acme")
	again.ID.Key, again.Attributes = "again", store.Attributes{"note": "pay-9911"}
	again.Revision[0]++
	put(t, st, payment("acme"), again)
	f := &Finder{Records: engineOn(t, st, nil)}
	little := paging.With(t.Context(), 1, time.Hour)
	for _, test := range []struct {
		text string
		sure bool
		want int
	}{{"pay-9911", false, 1}, {"pay-9911", true, 1}, {"9911", true, 0}, {"9911", false, 1}, {"order=9911", true, 1}, {"nothing", false, 0}} {
		got, err := Pages(f.Find).All(little, test.text, test.sure, 10)
		if err != nil || len(got.Found) != test.want || len(got.Found) == 0 && !got.Complete {
			t.Errorf("%s, sure %t: %+v, %v", test.text, test.sure, got, err)
		}
		if guessed := strings.Join(got.Guessed, " "); (guessed == "order=9911") != (test.sure && test.text == "9911") {
			t.Errorf("%s, sure %t: guessed %q", test.text, test.sure, guessed)
		}
		if test.sure && len(got.Found) > 0 && !slices.Contains(got.By, "keys") {
			t.Errorf("%s: only %v were searched", test.text, got.By)
		}
	}
	held := call(store.ID{Operation: "pay", Key: "pay-9911"}, 5)
	held.State, held.Disposition, held.Held, held.EndedAt, held.ExpiresAt = store.Processing, 0, true, 0, 0
	put(t, st, held)
	got, err := Pages(f.Find).All(t.Context(), "pay-9911", false, 10)
	if err != nil || len(got.Found) != 3 {
		t.Fatal(got, err)
	}
	for i := range got.Found {
		if rec, v := &got.Found[i].Record, got.Found[i].Verdict; (v.State == verdict.Held) != rec.Held {
			t.Errorf("%s, held %t, is %s", rec.ID.Operation, rec.Held, v.State)
		}
	}
	page, verdicts, err := Pages(f.Find).List("pay-9911").Judged(t.Context(), store.Query{})
	if err != nil || len(page.Records) != 3 || len(verdicts) != 3 || verdicts[2] == nil || page.Next != "" {
		t.Errorf("listed %d, %v, %q, %v", len(page.Records), verdicts, page.Next, err)
	}
}
