package benchinbox

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/bench/internal/benchstore"
	"github.com/semelhq/semel/bench/internal/loopback"
	"github.com/semelhq/semel/protocol/activitypub"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// options are those of a run that is over soon. The budget never matters.
func options(dir string) Options {
	return Options{
		Store:   benchstore.Options{Dir: dir, Progress: func(string, ...any) {}},
		Records: 1500, Senders: 7, BodyBytes: 700, Duration: 30 * time.Millisecond, Budget: time.Minute,
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, o := range map[string]Options{"memory": options(""), "pebble": options(dir)} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), o)
			// A busy machine may answer too late.
			if err != nil && !strings.Contains(err.Error(), "above 100ms") {
				t.Fatal(err)
			}
			for _, s := range []*Side{&r.Duplicates, &r.First, &r.Flood.Duplicates, &r.Flood.First} {
				if s.Deliveries == 0 || s.DeliveriesPerSecond <= 0 || s.Latency.P50 <= 0 || s.Latency.Max < s.Latency.P99 || s.Errors != 0 || s.Statuses != nil {
					t.Errorf("%+v", s)
				}
			}
			f := r.Flood
			if f.Copies != 7 || f.First.Deliveries != f.Activities || f.Duplicates.Deliveries != 6*f.Activities {
				t.Errorf("flood %+v", f)
			}
			if r.Store != name || r.Durability == nil || r.FillSeconds <= 0 || r.BodyBytes < o.BodyBytes {
				t.Errorf("%+v", r)
			}
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

// TestRecords: what fills a store is what an inbox has there after its activity was taken
// and handled.
func TestRecords(t *testing.T) {
	body := func(b []byte, i int) []byte { return appendActivity(b, appendKnown(nil, i), minBody) }
	ds := newDrafts(body)
	revisions := map[store.Revision]bool{}
	for i := range 2*draftSize + 10 {
		rec, err := ds.record(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		id := string(appendKnown(nil, i))
		if rec.ID.Key != id || !strings.HasSuffix(rec.ID.Principal, "actor:alice") || rec.State != semel.Completed || rec.ExpiresAt == 0 || rec.NextAt != rec.ExpiresAt {
			t.Fatalf("%+v", rec)
		}
		if m := rec.Outbox; len(m) != 1 || m[0].State != store.MessageDelivered || !bytes.HasSuffix(m[0].Payload, body(nil, i)) {
			t.Fatalf("%+v", rec.Outbox)
		}
		if revisions[rec.Revision] {
			t.Fatalf("record %d has the revision of another", i)
		}
		revisions[rec.Revision] = true
	}
	if err := ds.close(); err != nil {
		t.Error(err)
	}
}

// newSite serves an inbox that knows nothing, and connects senders.
func newSite(t *testing.T, budget time.Duration) []*sender {
	st := memstore.New()
	engine, err := semel.New(st, logging())
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := newInbox(engine, budget)
	if err != nil {
		t.Fatal(err)
	}
	return sendTo(t, inbox)
}

func sendTo(t *testing.T, inbox *activitypub.Inbox) []*sender {
	site, err := loopback.Serve(inbox, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
	})
	o := options("")
	senders, err := newSenders(site.Addr(), &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range senders {
			s.conn.Close()
		}
	})
	return senders
}

func TestWrongAnswersAreCounted(t *testing.T) {
	t.Run("a known activity that is new", func(t *testing.T) {
		got, took := repeat(t.Context(), newSite(t, time.Minute), time.Nanosecond, duplicate, (*sender).appendFresh)
		s := got.side(took)
		if err := s.fault("duplicates"); s.Errors == 0 || err == nil || !strings.Contains(err.Error(), "for something else") {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("an activity that isn't taken in time", func(t *testing.T) {
		got, took := repeat(t.Context(), newSite(t, time.Nanosecond), time.Nanosecond, taken, (*sender).appendFresh)
		s := got.side(took)
		if err := s.fault("first"); s.Statuses[503] != 7 || s.others() != "503: 7" || err == nil || !strings.Contains(err.Error(), "7 of 7") {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("an answer that is late", func(t *testing.T) {
		s := Side{}
		s.Latency.P99 = 100_000
		if err := s.late("x"); err != nil {
			t.Error(err)
		}
		s.Latency.P99++
		if err := s.late("x"); err == nil {
			t.Error("100 ms is not the limit")
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	o := options("")
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	err := (&Options{}).Validate()
	for _, want := range []string{"--records", "--senders", "--body-bytes", "--duration", "--budget"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
