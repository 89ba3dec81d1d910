package metrics_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// scrape is what Prometheus gets, without comments.
func scrape(m *metrics.Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "semel_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func expect(t *testing.T, got string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no %s in\n%s", line, got)
		}
	}
}

func TestDeliveriesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(func(metrics.Set) {})
		st := m.Store(memstore.New())
		events, counted := m.Events(), figures.New(st, &figures.Options{Crowded: m.Crowded}).Events()
		events.Unswept = func(semel.Unswept) {}
		decided := events.Decided
		events.Decided = func(e semel.Decided) { decided(e); counted.Decided(e) }
		e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(context.Background())
		call := semel.Call{Tenant: "a tenant", Principal: "a principal", Operation: "pay", Key: "the secret key", Door: "http"}
		do := func() {
			_, _ = e.Do(t.Context(), call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
				for range 11 {
					_, _ = e.Begin(ctx, call)
				}
				return semel.Result{}, nil
			})
		}
		do()
		do()
		call.Key = "another"
		_, _ = e.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{}, errors.New("no")
		})
		e.Internal().Answered(e.Internal().Arrived(t.Context(), "http", nil), semel.Delivered{Code: "key_missing"})
		e.Internal().Troubled(semel.Troubled{Door: "http", Err: errors.New("no")})
		pass(24*time.Hour + time.Minute)
		if n, err := e.Sweep(t.Context()); err != nil || n.Purged != 2 {
			t.Errorf("swept %+v, %v", n, err)
		}
		e.Internal().Answered(t.Context(), semel.Delivered{Door: "http", FailedOpen: true, ID: semel.ID{Operation: "pay"}})
		e.Internal().Answered(t.Context(), semel.Delivered{Door: "webhook", Parked: true, ID: semel.ID{Operation: "webhook.stripe"}})
		got := scrape(m)
		if m := regexp.MustCompile(`semel_store_calls_total\{call="now",outcome="ok"\} (\d+)`).FindStringSubmatch(got); m == nil || m[1] == "0" {
			t.Errorf("the store's clock was asked %v times", m)
		}
		expect(t, got,
			`semel_decisions_total{decision="execute",door="http",operation="pay"} 2`,
			`semel_decisions_total{decision="in_flight",door="http",operation="pay"} 11`,
			`semel_decisions_total{decision="replay",door="http",operation="pay"} 1`,
			`semel_simultaneous_deliveries_total{door="http",operation="pay"} 11`,
			`semel_crowded_keys_total{operation="pay"} 1`,
			`semel_leases_lost_total{operation="pay"} 0`,
			`semel_attempts_total{by="holder",disposition="completed",door="http",operation="pay"} 1`,
			`semel_attempts_total{by="holder",disposition="aborted",door="http",operation="pay"} 1`,
			`semel_refused_requests_total{code="key_missing",door="http"} 1`,
			`semel_troubles_total{door="http"} 1`,
			`semel_failed_open_requests_total{door="http",operation="pay"} 1`,
			`semel_failing_open 1`,
			`semel_parked_deliveries_total{operation="webhook.stripe"} 1`,
			`semel_store_calls_total{call="apply",outcome="ok"} 4`,
			`semel_store_calls_total{call="now",outcome="error"} 0`,
			`semel_store_calls_total{call="due",outcome="ok"} 1`,
			`semel_store_call_seconds_count{call="purge"} 1`,
			`semel_added_seconds_count{door="http"} 12`,
		)
		for _, secret := range []string{"tenant", "principal", "secret key", "another"} {
			if strings.Contains(got, secret) {
				t.Errorf("a label has %q", secret)
			}
		}
	})
}

// pass lets virtual time pass, for the store as well.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestFailingOpenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(func(metrics.Set) {})
		expect(t, scrape(m), `semel_failing_open 0`)
		m.Events().Answered(semel.Delivered{Door: "http", FailedOpen: true, ID: semel.ID{Operation: "pay"}})
		pass(4 * time.Minute)
		expect(t, scrape(m), `semel_failing_open 1`)
		pass(2 * time.Minute)
		expect(t, scrape(m), `semel_failing_open 0`)
	})
}

// queued is a store with a queue.
type queued struct{ *memstore.Store }

func (q queued) Extras() store.Extras {
	x := q.Store.Extras()
	x.Queues = q
	return x
}

func (queued) Queues() []store.QueueState {
	return []store.QueueState{{Name: "writes", Full: 0.25, Batches: [16]uint64{3, 1, 2, 15: 1}, Items: 40_013, Silent: 1500 * time.Millisecond}}
}

func TestQueuesAreShown(t *testing.T) {
	m := metrics.New(func(metrics.Set) {})
	st := queued{memstore.New()}
	if is, ok := store.As[queued](m.Store(st)); !ok || is != st {
		t.Error("the store can't be seen")
	}
	expect(t, scrape(m),
		`semel_store_queue_ratio{queue="writes"} 0.25`,
		`semel_store_silent_seconds{queue="writes"} 1.5`,
		`semel_store_batch_size_bucket{queue="writes",le="1"} 3`,
		`semel_store_batch_size_bucket{queue="writes",le="2"} 4`,
		`semel_store_batch_size_bucket{queue="writes",le="4"} 6`,
		`semel_store_batch_size_bucket{queue="writes",le="16384"} 6`,
		`semel_store_batch_size_bucket{queue="writes",le="+Inf"} 7`,
		`semel_store_batch_size_sum{queue="writes"} 40013`,
	)
}

func TestMessagesAreCounted(t *testing.T) {
	m := metrics.New(func(metrics.Set) {})
	ignore := func(dispatch.DeliveryEvent) {}
	events := m.Dispatched(&dispatch.Events{Delivered: ignore, Failed: ignore, Parked: ignore, Breaker: func(string, bool) {}})
	events.Failed(dispatch.DeliveryEvent{Destination: "billing"})
	events.Delivered(dispatch.DeliveryEvent{Destination: "billing", Waited: 2 * time.Second})
	events.Breaker("billing", true)
	expect(t, scrape(m),
		`semel_dispatch_tries_total{destination="billing",outcome="delivered"} 1`,
		`semel_dispatch_tries_total{destination="billing",outcome="failed"} 1`,
		`semel_dispatch_tries_total{destination="billing",outcome="parked"} 0`,
		`semel_dispatch_lag_seconds_sum{destination="billing"} 2`,
		`semel_dispatch_paused{destination="billing"} 1`,
	)
}

func TestTheCensusCountsTheWholeStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay", Lease: time.Hour}}, Events: &semel.Events{Unswept: func(semel.Unswept) {}}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(context.Background())
		begin := func(key string) *semel.Attempt {
			ans, err := e.Begin(t.Context(), semel.Call{Principal: "p", Operation: "pay", Key: key})
			if err != nil {
				t.Fatal(err)
			}
			return ans.Attempt
		}
		if err := begin("held").Hold(t.Context(), "no answer"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		// SECURITY.md: "Such calls are listed and counted apart from others".
		ans, err := e.Begin(t.Context(), semel.Call{BoundTo: "stranger", Operation: "pay", Key: "stranger's"})
		if err != nil {
			t.Fatal(err)
		}
		if err := ans.Attempt.Hold(t.Context(), "no answer"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		if _, err := begin("running").StartEffect(t.Context(), "charge"); err != nil {
			t.Fatal(err)
		}
		if err := begin("done").Complete(t.Context(), semel.Result{}); err != nil {
			t.Fatal(err)
		}
		census := metrics.NewCensus(st)
		m := metrics.New(func(set metrics.Set) {
			now, _ := st.Now(context.Background())
			census.Set(set, now)
		})
		if got := scrape(m); strings.Contains(got, "semel_attempts{") {
			t.Errorf("before anybody has looked there is\n%s", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go census.Run(ctx)
		synctest.Wait()
		expect(t, scrape(m),
			`semel_attempts{state="held"} 1`, `semel_attempts{state="held_unverified"} 1`, `semel_attempts{state="in_flight"} 1`, `semel_effects_open 1`,
			`semel_oldest_attempt_seconds{state="held"} 120`, `semel_oldest_attempt_seconds{state="held_unverified"} 60`, `semel_oldest_attempt_seconds{state="in_flight"} 0`,
		)
		now, _ := st.Now(ctx)
		if calls, text := census.Waiting(now); calls != 1 || text != "1 call of pay waits for a decision, for 2m0s; held for unverified callers: 1" {
			t.Errorf("%d wait: %s", calls, text)
		}
	})
}
