package benchinbox

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/bench/internal/histogram"
	"github.com/semelhq/semel/bench/internal/loopback"
	"github.com/semelhq/semel/store"
)

// limit is how long it may take to tell a duplicate (VUL-03-002).
const limit = 100 * time.Millisecond

// Report is the result; go run ./bench inbox --json prints it.
type Report struct {
	Store       string            `json:"store"` // "memory", "pebble", "postgres", "redis" or "redis-cluster"
	Durability  *store.Durability `json:"durability,omitempty"`
	Records     int               `json:"records"`
	Senders     int               `json:"senders"`
	BodyBytes   int               `json:"body_bytes"`
	BudgetMs    int64             `json:"budget_ms"`
	CPUs        int               `json:"cpus"`
	Go          string            `json:"go"`
	FillSeconds float64           `json:"fill_seconds"`
	// Duplicates are deliveries of random activities that are in the store; First are
	// those of new ones.
	Duplicates Side  `json:"duplicates"`
	First      Side  `json:"first"`
	Flood      Flood `json:"flood"`
}

// Flood has the measurements of new activities that come Copies times at once.
type Flood struct {
	Activities int `json:"activities"`
	Copies     int `json:"copies"`
	// Duplicates are all copies but the one that was taken, and those that were
	// refused; First are those that were taken.
	Duplicates Side `json:"duplicates"`
	First      Side `json:"first"`
}

// Side has the measurements of one kind of delivery.
type Side struct {
	// Deliveries counts those that were answered, with whatever status.
	Deliveries          int               `json:"deliveries"`
	Seconds             float64           `json:"seconds"`
	DeliveriesPerSecond float64           `json:"deliveries_per_second"`
	Latency             histogram.Latency `json:"latency"`
	// Statuses counts the answers with each status other than 202.
	Statuses map[int]int `json:"statuses,omitempty"`
	// Errors counts deliveries without an answer, or with a wrong one. FirstError is one
	// of them.
	Errors     int    `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
}

func (t *tally) side(took time.Duration) Side {
	s := Side{Deliveries: int(t.latency.Total), Seconds: took.Seconds(), Latency: t.latency.Latency(), Statuses: t.statuses, Errors: t.failed}
	if s.Seconds > 0 {
		s.DeliveriesPerSecond = float64(s.Deliveries) / s.Seconds
	}
	if t.first != nil {
		s.FirstError = t.first.Error()
	}
	return s
}

func newSenders(addr string, opts *Options) (senders []*sender, err error) {
	for i := range opts.Senders {
		conn, err := loopback.Dial(addr)
		if err != nil {
			return senders, err
		}
		senders = append(senders, &sender{number: i, conn: conn, rng: rand.New(rand.NewPCG(uint64(i), 1)), size: opts.BodyBytes})
	}
	return senders, nil
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%s store, %d activities, %d senders, %d byte activities, budget %v, %d CPUs, %s\n",
		r.Store, r.Records, r.Senders, r.BodyBytes, time.Duration(r.BudgetMs)*time.Millisecond, r.CPUs, r.Go)
	if d := r.Durability; d != nil {
		fmt.Fprintf(w, "durability %s\n", d.Level)
	}
	fmt.Fprintf(w, "\n%-24s %12s %10s %10s %10s %8s %s\n", "", "per second", "p50", "p99", "max", "errors", "not 202")
	row := func(name string, s *Side) {
		l := s.Latency
		fmt.Fprintf(w, "%-24s %12.0f %10s %10s %10s %8d %s\n", name, s.DeliveriesPerSecond, millis(l.P50), millis(l.P99), millis(l.Max), s.Errors, s.others())
	}
	row("duplicates", &r.Duplicates)
	row("first deliveries", &r.First)
	row("flood, duplicates", &r.Flood.Duplicates)
	row("flood, first deliveries", &r.Flood.First)
	fmt.Fprintf(w, "\nstore filled in %.1f s; flood of %d activities, each %d times at once\n", r.FillSeconds, r.Flood.Activities, r.Flood.Copies)
}

// others are the statuses other than 202, for people.
func (s *Side) others() string {
	var list []string
	for _, status := range slices.Sorted(maps.Keys(s.Statuses)) {
		list = append(list, fmt.Sprintf("%d: %d", status, s.Statuses[status]))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

func millis(us float64) string {
	return time.Duration(us * 1e3).Round(10 * time.Microsecond).String()
}
