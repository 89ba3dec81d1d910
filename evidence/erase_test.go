package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// skewed is a store as a node with a wrong clock sees it.
type skewed struct {
	*memstore.Store
	by time.Duration
}

func (s *skewed) Now(ctx context.Context) (store.Instant, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(s.by), err
}

// wrongly writes entries of a node whose clock is off.
func wrongly(t *testing.T, r *rig, by time.Duration, n int) {
	t.Helper()
	l, err := evidence.New(&skewed{r.store, by}, r.keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := decide(t.Context(), l, semel.EvidenceDecisions, fmt.Sprint("skewed ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Entries about deliveries and about changes have one clock, the store's.
func TestDecisionsAreStampedByTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.store.Advance(1000 * time.Hour)
		for range 2 {
			<-time.After(time.Second)
			r.do(t, call("acme", "k", "p"), "x")
		}
		now, err := r.store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := r.entries(t)
		wantTypes(t, all, "observation.emitted first_seen", "execution.executed", "observation.emitted duplicate_replayed")
		for i, ago := range []time.Duration{time.Second, time.Second, 0} {
			if want := now.Add(-ago).Time(); !all[i].EmittedAt.Equal(want.Truncate(time.Microsecond)) {
				t.Errorf("entry %d is of %v, want %v", i, all[i].EmittedAt, want)
			}
		}
	})
}

func TestEraseGoesOnPastEntriesOfAWrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		name   string
		write  func(t *testing.T, r *rig) // between entries that are old
		young  func(t *testing.T, r *rig) // after those that are not
		erased int                        // without those of write
		stay   int                        // of those of write
	}{
		{"one that is far ahead", func(t *testing.T, r *rig) { wrongly(t, r, 10*year, 1) }, nil, 40, 0},
		{"every third one", func(t *testing.T, r *rig) {
			for range 20 {
				wrongly(t, r, 10*year, 1)
				wrongly(t, r, 0, 2)
			}
		}, nil, 40, 0},
		{"some that are a bit ahead", func(t *testing.T, r *rig) { wrongly(t, r, 90*time.Minute, 10) }, nil, 40, 0},
		{"one that tells no time", func(t *testing.T, r *rig) {
			if err := r.store.AppendEvidence(t.Context(), []store.Entry{{Leaf: []byte(`{"leaf":1}`), Opening: []byte(`{}`)}}); err != nil {
				t.Fatal(err)
			}
		}, nil, 40, 0},
		{"and one that is far behind takes none with it that are young", func(*testing.T, *rig) {}, func(t *testing.T, r *rig) { wrongly(t, r, -10*year, 1) }, 40, 0},
		{"nor do many, among more of others", func(*testing.T, *rig) {}, func(t *testing.T, r *rig) { wrongly(t, r, -10*year, 30) }, 40, 0},
		{"a long stretch of them", func(t *testing.T, r *rig) { wrongly(t, r, 10*year, 30) }, nil, 40, 0},
		{"but one that is ahead and has nothing old behind it waits", func(*testing.T, *rig) {}, func(t *testing.T, r *rig) { wrongly(t, r, 10*year, 1) }, 40, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.fill(t, 0, 10)
				c.write(t, r)
				written := len(r.raw(t)) - 20
				r.fill(t, 10, 20)
				<-time.After(time.Hour)
				now, err := r.store.Now(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r.fill(t, 20, 40)
				if c.young != nil {
					c.young(t, r)
				}
				r.integrate(t)
				want := c.erased + written - c.stay
				if n, err := r.log.Erase(t.Context(), now.Time()); err != nil || n != uint64(want) {
					t.Errorf("Erase gives %d, %v, want %d", n, err, want)
				}
				for i, en := range r.raw(t) {
					if erased := en.Opening == nil; erased != (i < want) {
						t.Errorf("entry %d: erased = %v", i, erased)
					}
				}
			})
		})
	}
}

// What is kept of people goes when it was promised to, whether the node signs or not.
func TestALogThatIsNotSignedAnyMoreIsErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keep = time.Hour
		st := &changeable{memstore.New()}
		l, err := evidence.New(st, newKeys(t), &evidence.Options{KeepOpenings: keep})
		if err != nil {
			t.Fatal(err)
		}
		write := func() snapshot {
			t.Helper()
			if err := decide(t.Context(), l, semel.EvidenceDurable, "k"); err != nil {
				t.Fatal(err)
			}
			if err := l.Integrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return st.snapshot(t)
		}
		older := write()
		write()
		st.restore(t, older)
		if err := l.Integrate(t.Context()); !errors.Is(err, evidence.ErrTampered) {
			t.Fatal("it is signed:", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		<-time.After(2 * keep)
		entries, err := st.ReadEvidence(t.Context(), 0, 10)
		if err != nil || len(entries) == 0 {
			t.Fatal(entries, err)
		}
		for i, en := range entries {
			if en.Opening != nil {
				t.Errorf("entry %d has its opening", i)
			}
		}
		stop()
		<-ended
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// raw are the entries as they are stored.
func (r *rig) raw(t *testing.T) []store.Entry {
	t.Helper()
	entries, err := r.store.ReadEvidence(t.Context(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// counted counts what erasing takes.
type counted struct {
	*memstore.Store
	read  int
	steps []uint64
}

func (x *counted) Extras() store.Extras {
	all := x.Store.Extras()
	all.Evidence = x
	return all
}

func (c *counted) ReadEvidence(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
	list, err := c.Store.ReadEvidence(ctx, from, limit)
	c.read += len(list)
	return list, err
}

func (c *counted) EraseEvidence(ctx context.Context, from, to uint64) error {
	c.steps = append(c.steps, to-from)
	return c.Store.EraseEvidence(ctx, from, to)
}

// A long log is erased in steps, between which others integrate it. Where there is nothing
// to erase hardly anything is read.
func TestErasingIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("makes tens of thousands of entries")
	}
	const entries, batch = 70_000, 10_000
	st := &counted{Store: memstore.New()}
	l, err := evidence.New(st, newKeys(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{store: st.Store, log: l}
	for i := range entries {
		if err := decide(t.Context(), l, semel.EvidenceDecisions, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Close(t.Context()), l.Integrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	st.read = 0
	if n, err := l.Erase(t.Context(), time.Now().Add(-time.Hour)); err != nil || n != 0 || st.read > batch {
		t.Errorf("where nothing is old Erase gives %d, %v, and reads %d", n, err, st.read)
	}
	st.read = 0
	n, err := l.Erase(t.Context(), time.Now().Add(time.Hour))
	if err != nil || n != entries || st.read > entries+2*batch {
		t.Errorf("Erase gives %d, %v, and reads %d", n, err, st.read)
	}
	if len(st.steps) != 2 || st.steps[0] != 1<<16 {
		t.Errorf("the steps are %v", st.steps)
	}
	for i, en := range r.raw(t) {
		if en.Opening != nil {
			t.Fatalf("the opening of entry %d is still there", i)
		}
	}
}
