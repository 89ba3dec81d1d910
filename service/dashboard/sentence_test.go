package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

var (
	byOlga   = &store.Settled{By: store.ByOperator, Who: "olga", Reason: "seen at the bank", At: 9}
	byStripe = &store.Settled{By: store.ByReconciler, Who: "stripe", At: 9}
)

// everyState is a record in each state that a call can be in, by a name for it.
func everyState(now store.Instant) map[string]*store.Record {
	all := map[string]*store.Record{}
	put := func(name string, change ...func(r *store.Record)) {
		r := &store.Record{
			ID: store.ID{Operation: "orders.create", Key: name}, State: store.Failed, Fence: 100, Attempt: 1, Origin: 100, Holder: "node-1",
			CreatedAt: now - 9, StartedAt: now - 9, UpdatedAt: now - 5, EndedAt: now - 5, ExpiresAt: now.Add(time.Hour),
			Policy: store.Policy{Window: time.Hour, Lease: time.Minute},
		}
		for _, f := range change {
			f(r)
		}
		if r.Disposition == store.DispositionCompleted {
			r.State = store.Completed
		}
		all[name] = r
	}
	as := func(d store.Disposition, by *store.Settled) func(*store.Record) {
		return func(r *store.Record) { r.Disposition, r.Settled = d, by }
	}
	running := func(lease store.Instant) func(*store.Record) {
		return func(r *store.Record) { r.State, r.EndedAt, r.ExpiresAt, r.LeaseUntil = store.Processing, 0, 0, lease }
	}
	after := func(d store.Disposition, by *store.Settled) func(*store.Record) {
		return func(r *store.Record) {
			r.Attempt, r.Earlier = 2, []store.AttemptRecord{{Number: 1, Fence: 90, Holder: "node-2", Disposition: d, Settled: by, StartedAt: now - 20, EndedAt: now - 10}}
		}
	}
	event := func(state store.MessageState, tries int) func(*store.Record) {
		return func(r *store.Record) {
			r.Door, r.Disposition = "webhook", store.DispositionCompleted
			r.Outbox = []store.Message{{ID: "m1", Name: "item", Destination: "billing", State: state, Tries: tries, CreatedAt: now - 5}}
			if state == store.MessagePending {
				r.Outbox[0].NextAt = now.Add(time.Hour)
			}
		}
	}
	undo := func(state store.CompensationState) func(*store.Record) {
		return func(r *store.Record) {
			r.Compensation = &store.Compensation{Operation: "orders.cancel", Key: "undo", State: state, Reason: "returned", StartedAt: now - 4}
			if state == store.CompensationFailed {
				r.Compensation.Failure = &store.Failure{Code: "gone", Message: "no such order"}
			}
		}
	}
	ledger := func(r *store.Record) { r.Policy.Ledger = true }
	const completed, rejected, failed, aborted, abandoned = store.DispositionCompleted, store.DispositionRejected, store.DispositionFailed, store.DispositionAborted, store.DispositionAbandoned
	for _, d := range []store.Disposition{completed, rejected, failed, aborted, abandoned} {
		put(d.String(), as(d, nil))
		put("after-"+d.String(), as(completed, nil), after(d, nil))
		put("operator-says-"+d.String(), as(d, byOlga)) // abandoned: a release
		if d != abandoned {
			put("reconciler-says-"+d.String(), as(d, byStripe))
		}
	}
	put("failed-with-a-reason", as(failed, nil), func(r *store.Record) { r.Failure = &store.Failure{Code: "declined", Message: "no money"} })
	put("running", running(now.Add(time.Hour)))
	put("running-after-a-takeover", running(now.Add(time.Hour)), after(abandoned, nil))
	put("silent", running(now-1))
	put("held", running(0), func(r *store.Record) { r.Held, r.HeldReason = true, "the upstream did not answer" })
	put("held-with-an-effect", running(0), func(r *store.Record) {
		r.Held, r.Effects = true, []store.EffectRecord{{Name: "charge", Key: "k", State: store.EffectStarted, Fence: 100, StartedAt: now - 8}}
	})
	put("effects-settled", as(abandoned, byOlga), func(r *store.Record) {
		r.Effects = []store.EffectRecord{{Name: "charge", Key: "k", State: store.EffectRefuted, Fence: 100, StartedAt: now - 8, SettledAt: now - 6, Settled: byOlga}}
	})
	put("takeover-before-any-effect", as(completed, nil), after(abandoned, nil), ledger)
	put("run-after-a-release", as(completed, nil), after(abandoned, byOlga))
	put("run-after-a-settlement", as(completed, nil), after(aborted, byOlga))
	put("many-attempts", as(completed, nil), func(r *store.Record) { r.Attempt = 40 })
	for _, state := range []store.CompensationState{store.CompensationStarted, store.CompensationDone, store.CompensationFailed} {
		put("compensation-"+string(state), as(completed, nil), undo(state))
		put("settled-and-compensation-"+string(state), as(completed, byOlga), undo(state))
	}
	for _, state := range []store.MessageState{store.MessagePending, store.MessageDelivered, store.MessageParked, store.MessageDiscarded} {
		put("event-"+string(state), event(state, 0))
		put("event-"+string(state)+"-after-a-try", event(state, 1))
	}
	put("unconfirmed", as(aborted, nil), func(r *store.Record) { r.Confirmation = &store.Confirmation{Principal: "alice"} })
	put("confirmed", as(aborted, &store.Settled{By: store.ByOperator, Who: "olga", Reason: "she called", At: now - 1}), func(r *store.Record) {
		r.Confirmation = &store.Confirmation{Principal: "alice", Tokens: []store.ConfirmationToken{{ExpiresAt: now.Add(time.Hour)}}}
	})
	put("numbered", as(completed, nil), func(r *store.Record) { r.Sequence = 7 })
	return all // but for the mark of a sequence, which is no call, and which nobody shows
}

// TestOneSentence looks at a record in each state in the API, in a list, in the terminal and on the
// page: all of them say the same, which is what the verdict says.
func TestOneSentence(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short the program isn't built")
	}
	p := newProgram(t, true, false)
	kept := p.Internal().Store()
	now, err := kept.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := everyState(now)
	for _, rec := range states {
		rec.Revision = store.Revision{1: byte(len(rec.ID.Key)), 2: 1}
		if _, applied, err := kept.Apply(t.Context(), store.Write{Record: rec}); err != nil || !applied {
			t.Fatal(rec.ID.Key, applied, err)
		}
	}
	listed := map[string]string{}
	var page struct{ Records []shown }
	get(t, p.page+"/v1/records?limit=1000", &page)
	for _, r := range page.Records {
		listed[r.ID] = r.Verdict.Says
	}
	exe := filepath.Join(t.TempDir(), "semel.exe")
	if out, err := exec.Command("go", "build", "-o", exe, "github.com/semelhq/semel/cmd/semel").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tb := open(t, p.page)
	for name, rec := range states {
		t.Run(name, func(t *testing.T) {
			want, id := verdict.Of(&verdict.Facts{Record: rec, Now: now + 1, Harmless: true}), rec.ID.Encode()
			var got struct{ Record shown }
			if get(t, p.page+"/v1/records/"+id, &got); got.Record.Verdict.Says != want.Says || got.Record.Verdict.State != want.State {
				t.Errorf("the API says  %+v\nthe verdict is %+v", got.Record.Verdict, want)
			}
			if says, ok := listed[id]; ok && says != want.Says {
				t.Errorf("its list says  %s\nthe verdict is %s", says, want.Says)
			}
			out, err := exec.Command(exe, "why", "--url", p.page, id).CombinedOutput()
			head, rest, _ := strings.Cut(string(out), "\n")
			if err != nil || !strings.HasSuffix(head, ": "+want.Says) {
				t.Errorf("the terminal says %s, %v\nthe verdict is    %s", head, err, want.Says)
			}
			if strings.Contains(rest, "purge") || strings.Contains(rest, "records release") && want.State != verdict.Held {
				t.Errorf("the terminal advises against the state:\n%s", rest)
			}
			tb := *tb
			tb.t = t
			tb.visit("#/record/" + id)
			tb.shows("Record id")
			tb.wait(fmt.Sprintf("document.querySelector('.title-key')?.innerText === %q", name))
			if says := eval[string](&tb, "document.querySelector('p.verdict').firstChild.textContent.trim()"); !strings.EqualFold(says[:1], want.Says[:1]) || says[1:] != want.Says[1:]+"." {
				t.Errorf("the page says  %s\nthe verdict is %s", says, want.Says)
			}
			retry := got.Record.Verdict.Retry
			if says := eval[string](&tb, "document.querySelector('p.verdict').textContent"); !strings.Contains(says, "A retry "+retry) || !strings.Contains(rest, "  "+retry+"\n") {
				t.Errorf("a retry %s, by the API; the page says %s, and the terminal\n%s", retry, says, rest)
			}
		})
	}
	if len(states) < 40 {
		t.Errorf("there are %d states", len(states))
	}
}

// shown is what the API says about a record.
type shown struct {
	ID      string
	Verdict verdict.Verdict
}

func get(t *testing.T, url string, into any) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(url, r.Status, err)
	}
}
