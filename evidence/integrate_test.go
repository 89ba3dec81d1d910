package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestProofs(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	r.fill(t, 0, 100)
	r.integrate(t)
	_, old := r.reader(t).Checkpoint()
	r.fill(t, 100, 700)
	r.integrate(t)
	reader := r.reader(t)
	signed, c := reader.Checkpoint()
	if c.Size != 1400 || old.Size != 200 {
		t.Fatal(c.Size, old.Size)
	}
	if opened, err := r.keys.Trust().Open([]byte(signed)); err != nil || opened != c {
		t.Fatal(opened, err)
	}
	for _, n := range []uint64{0, 1, 255, 256, 700, 1399} {
		proofs, err := reader.Prove(ctx, []uint64{n})
		if err != nil {
			t.Fatal(err)
		}
		en, err := reader.Entry(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(proofs[0], int64(c.Size), c.Root, int64(n), tlog.RecordHash(en.Leaf)); err != nil {
			t.Errorf("entry %d: %v", n, err)
		}
	}
	if _, err := reader.Prove(ctx, []uint64{1400}); err == nil {
		t.Error("an entry is proved that is not there")
	}
	proof, err := reader.ProveTree(ctx, old.Size)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckTree(proof, int64(c.Size), c.Root, int64(old.Size), old.Root); err != nil {
		t.Error(err)
	}
}

// TestNodesMakeOneHistory has many nodes integrate while entries are written, and
// holds every checkpoint that any of them signed against the last.
func TestNodesMakeOneHistory(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, &evidence.Options{KeepEvery: time.Nanosecond})
	stop := make(chan struct{})
	var nodes sync.WaitGroup
	for range 4 {
		node := r.node(t, &evidence.Options{KeepEvery: time.Nanosecond})
		nodes.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := node.Integrate(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 8 {
		r.fill(t, 100*i, 100*(i+1))
		r.integrate(t) // here or by another node, each part gets a checkpoint
	}
	close(stop)
	nodes.Wait()
	r.integrate(t)
	export := r.export(t, nil)
	report := verify(t, export, r.keys.Trust())
	if report.Finding != nil || report.Entries != 1600 || report.Checkpoints < 5 {
		t.Errorf("%+v, %v", report, report.Finding)
	}
}

// faulty is a store whose writes fail by a plan: some before they are done, some
// after.
type faulty struct {
	*memstore.Store
	mu    sync.Mutex
	calls int
	plan  func(n int) (fails, done bool)
}

func (x *faulty) Extras() store.Extras {
	all := x.Store.Extras()
	all.Evidence = x
	return all
}

var errFault = errors.New("a fault")

func (f *faulty) fault(do func() error) error {
	f.mu.Lock()
	f.calls++
	fails, done := f.plan(f.calls)
	f.mu.Unlock()
	if fails && !done {
		return errFault
	}
	err := do()
	if fails && err == nil {
		err = errFault
	}
	return err
}

func (f *faulty) Apply(ctx context.Context, w store.Write) (cur *semel.Record, applied bool, err error) {
	err = f.fault(func() (err error) { cur, applied, err = f.Store.Apply(ctx, w); return err })
	return cur, applied, err
}

func (f *faulty) PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error {
	return f.fault(func() error {
		for name, data := range tiles { // a tile never changes
			if old, err := f.EvidenceTile(ctx, name); err == nil && string(old) != string(data) {
				panic(name + " is written again with another content")
			}
		}
		return f.Store.PutEvidenceTiles(ctx, tiles)
	})
}

func (f *faulty) AppendEvidence(ctx context.Context, entries []store.Entry) error {
	return f.fault(func() error { return f.Store.AppendEvidence(ctx, entries) })
}

// TestIntegrationResumes ends integration at each of its writes, both ways, with the
// node going on or another one in its place.
func TestIntegrationResumes(t *testing.T) {
	ctx := context.Background()
	for at := 1; at <= 12; at++ {
		for _, done := range []bool{false, true} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, done %v, restart %v", at, done, restart), func(t *testing.T) {
					fired := false
					st := &faulty{Store: memstore.New(), plan: func(n int) (bool, bool) {
						fired = fired || n == at
						return n == at, done
					}}
					keys := newKeys(t)
					opts := &evidence.Options{KeepEvery: time.Nanosecond}
					if _, err := evidence.New(st.Store, keys, opts); err != nil { // the log has begun
						t.Fatal(err)
					}
					l, err := evidence.New(st, keys, opts)
					if err != nil {
						t.Fatal(err)
					}
					for i := range 6 {
						entries := make([]store.Entry, 100)
						for j := range entries {
							entries[j].Leaf = fmt.Appendf(nil, `{"leaf":%d}`, 100*i+j)
						}
						if err := st.Store.AppendEvidence(ctx, entries); err != nil {
							t.Fatal(err)
						}
						if err := l.Integrate(ctx); err != nil {
							if !errors.Is(err, errFault) {
								t.Fatal(err)
							}
							if restart {
								if l, err = evidence.New(st, keys, opts); err != nil {
									t.Fatal(err)
								}
							}
						}
					}
					if err := l.Integrate(ctx); err != nil {
						t.Fatal(err)
					}
					if !fired {
						t.Fatal("the fault did not happen")
					}
					reader, err := l.Reader(ctx)
					if err != nil {
						t.Fatal(err)
					}
					var b strings.Builder
					if err := reader.Export(ctx, &b, nil); err != nil {
						t.Fatal(err)
					}
					if report := verify(t, []byte(b.String()), keys.Trust()); report.Finding != nil || report.Entries != 600 {
						t.Errorf("%+v %v", report, report.Finding)
					}
				})
			}
		}
	}
}

func TestTamperedStoreIsNotSigned(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	r.fill(t, 0, 20)
	r.integrate(t)
	entries, err := r.store.ReadEvidence(ctx, 30, 1)
	if err != nil {
		t.Fatal(err)
	}
	entries[0].Leaf[len(entries[0].Leaf)-20] ^= 1 // the store's own bytes
	r.fill(t, 20, 21)
	if err := r.node(t, nil).Integrate(ctx); !errors.Is(err, evidence.ErrTampered) {
		t.Errorf("a changed leaf is signed: %v", err)
	}
}

func TestRotation(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	r.fill(t, 0, 5)
	r.integrate(t)
	old := r.keys
	next, err := old.Rotated()
	if err != nil {
		t.Fatal(err)
	}
	r.keys = next
	rotated := r.node(t, nil)
	r.fill(t, 5, 10)
	if err := rotated.Integrate(ctx); err != nil {
		t.Fatal(err)
	}
	handover, at := r.reader(t).Checkpoint()
	r.fill(t, 10, 15)
	if err := rotated.Integrate(ctx); err != nil {
		t.Fatal(err)
	}
	export := r.export(t, nil)
	newest := strings.Fields(string(next.Trust().Text()))[1]
	trust := func(text string) *evidence.Trust {
		t.Helper()
		tr, err := evidence.ParseTrust([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	t.Run("both keys sign the checkpoint at which one takes over", func(t *testing.T) {
		for _, tr := range []*evidence.Trust{old.Trust(), trust(newest)} {
			if _, err := tr.Open([]byte(handover)); err != nil {
				t.Error(err)
			}
		}
		if signed, _ := r.reader(t).Checkpoint(); strings.Count(signed, "\u2014") != 1 {
			t.Error("and both sign the next")
		}
	})
	t.Run("with both the log is whole", func(t *testing.T) {
		if report := verify(t, export, next.Trust()); report.Finding != nil {
			t.Error(report.Finding)
		}
	})
	t.Run("a key counts for its sizes", func(t *testing.T) {
		limits := fmt.Sprintf("%s until=%d\n%s from=%d\n", strings.TrimSpace(string(old.Trust().Text())), at.Size, newest, at.Size)
		if report := verify(t, export, trust(limits)); report.Finding != nil {
			t.Error(report.Finding)
		}
		limits = strings.Replace(limits, fmt.Sprintf("from=%d", at.Size), "from=100", 1)
		if report := verify(t, export, trust(limits)); report.Finding == nil || report.Finding.Kind != evidence.KindSignature {
			t.Errorf("%+v", report)
		}
	})
	t.Run("a node that still has the old keys signs no more", func(t *testing.T) {
		r.fill(t, 15, 16)
		if err := r.log.Integrate(ctx); err == nil || !strings.Contains(err.Error(), "signed last by") {
			t.Error(err)
		}
	})
}

func TestErase(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.fill(t, 0, 10)
		<-time.After(time.Hour)
		limit := time.Now()
		r.fill(t, 10, 15)
		r.integrate(t)
		if n, err := r.log.Erase(ctx, limit); err != nil || n != 20 {
			t.Fatal(n, err)
		}
		if n, err := r.log.Erase(ctx, limit); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		for i, en := range r.entries(t) {
			if erased := en.opening.Salt == ""; erased != (i < 20) {
				t.Errorf("entry %d: erased = %v", i, erased)
			}
		}
		if report := verify(t, r.export(t, nil), r.keys.Trust()); report.Finding != nil || report.Erased != 20 {
			t.Errorf("%+v", report)
		}
	})
}

// TestRun lets nodes run as services do.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		fail := func(err error) { t.Error(err) }
		for range 3 {
			l := r.node(t, &evidence.Options{OnError: fail, KeepEvery: 3 * time.Second})
			work.Go(func() { _ = l.Run(ctx) })
		}
		for i := range 20 {
			r.fill(t, 10*i, 10*i+10)
			<-time.After(time.Second)
			synctest.Wait()
			if _, c := r.reader(t).Checkpoint(); c.Size < uint64(20*i) {
				t.Errorf("after second %d the checkpoint has %d entries", i, c.Size)
			}
		}
		r.fill(t, 200, 201)
		cancel()
		work.Wait()
		if _, c := r.reader(t).Checkpoint(); c.Size != 402 {
			t.Errorf("the last checkpoint has %d entries", c.Size)
		}
		report := verify(t, r.export(t, nil), r.keys.Trust())
		if report.Finding != nil || report.Checkpoints < 5 || report.Checkpoints > 10 {
			t.Errorf("%+v %v", report, report.Finding)
		}
	})
}
