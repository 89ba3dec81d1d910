package enginetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// mode is what happens at a failpoint.
type mode string

const (
	crashBefore mode = "crash before"
	crashAfter  mode = "crash after"
	errorBefore mode = "error, not applied"
	errorAfter  mode = "error, applied"
	delayed     mode = "delay"
)

var modes = []mode{crashBefore, crashAfter, errorBefore, errorAfter, delayed}

var errInjected = errors.New("injected")

// disk is what the processes share.
type disk interface {
	semel.Store
	store.DueIndex
	store.Purger
	store.EvidenceLog
}

// history is every version of every record that a store had, and the store.
type history struct {
	disk
	open     func(t *testing.T) disk
	power    sync.RWMutex // held for reading by those who use the disk
	mu       sync.Mutex
	versions []version
}

func newHistory(t *testing.T, open func(t *testing.T) disk) *history {
	return &history{disk: open(t), open: open}
}

// fail cuts the power: what the disk has not made durable is gone.
func (h *history) fail(t *testing.T) {
	h.power.Lock()
	defer h.power.Unlock()
	h.disk = h.open(t)
}

// disks are the stores on which processes are tried. What open returns when it is
// called again is what is left of the store after a loss of power, while it was in use.
var disks = map[string]func() (open func(t *testing.T) disk){
	"memstore": func() func(t *testing.T) disk {
		st := memstore.New() // which outlives its processes
		return func(*testing.T) disk { return st }
	},
	"pebblestore": func() func(t *testing.T) disk {
		fs := vfs.NewCrashableMem()
		var last *pebblestore.Store
		return func(t *testing.T) disk {
			if last != nil {
				left := fs.CrashClone(vfs.CrashCloneCfg{})
				must(t, last.Close())
				fs = left
			}
			st, err := pebblestore.Open("store", &pebblestore.Options{FS: fs, MemTableBytes: 256 << 10, CacheBytes: 1 << 20})
			must(t, err)
			last = st
			return st
		}
	},
}

type version struct{ prev, next semel.Record }

func (h *history) apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	prev, err := h.Get(ctx, w.Record.ID)
	if err != nil {
		prev = &semel.Record{}
	}
	cur, applied, err := h.Apply(ctx, w)
	if applied {
		h.versions = append(h.versions, version{*prev, *w.Record})
	}
	return cur, applied, err
}

// process is a store as one process sees it, whose calls are counted. At one of them
// something happens, once. Where the process crashes, the disk loses its power too.
type process struct {
	t    *testing.T
	disk *history
	at   int // counted from 1; zero: nothing happens
	mode mode
	rng  *rand.Rand

	mu    sync.Mutex
	names []string
	dead  bool
	fired bool
}

// seen is what was called so far, and whether the point was reached.
func (p *process) seen() (names []string, fired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.names), p.fired
}

func (p *process) Extras() store.Extras { return store.Extras{Due: p, Purge: p, Evidence: p} }

// hit is called at every point. do is what happens there.
func (p *process) hit(ctx context.Context, name string, do func()) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errInjected
	}
	p.names = append(p.names, name)
	here := len(p.names) == p.at
	if here {
		p.fired = true
		p.dead = p.mode == crashBefore || p.mode == crashAfter
	}
	p.mu.Unlock()
	act := do
	do = func() {
		p.disk.power.RLock()
		defer p.disk.power.RUnlock()
		act()
	}
	if !here {
		do()
		return nil
	}
	switch p.mode {
	case crashAfter:
		do()
		fallthrough
	case crashBefore:
		p.disk.fail(p.t)
		runtime.Goexit()
	case errorAfter:
		do()
		fallthrough
	case errorBefore:
		return errInjected
	}
	before, after := p.pause(), p.pause()
	select {
	case <-time.After(before):
	case <-ctx.Done(): // it is on its way, and arrives later
		time.AfterFunc(time.Second, do)
		return ctx.Err()
	}
	do()
	select {
	case <-time.After(after):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *process) pause() time.Duration { return time.Duration(p.rng.Int64N(int64(4 * time.Second))) }

func (p *process) Apply(ctx context.Context, w store.Write) (cur *semel.Record, applied bool, err error) {
	var inner error
	err = p.hit(ctx, "write: "+stage(w.Record), func() { cur, applied, inner = p.disk.apply(context.Background(), w) })
	if err != nil {
		return nil, false, err
	}
	return cur, applied, inner
}

// stage tells what a record is a version for.
func stage(r *semel.Record) string {
	parts := []string{r.ID.Operation, r.State.String()}
	if r.State == semel.Failed {
		parts[1] = r.Disposition.String()
	}
	if r.Held {
		parts = append(parts, "held")
	}
	for _, ef := range r.Effects {
		parts = append(parts, ef.Name+" "+string(ef.State))
	}
	for _, m := range r.Outbox {
		parts = append(parts, m.Name+" "+string(m.State))
	}
	return strings.Join(parts, ", ")
}

func (p *process) Get(ctx context.Context, id semel.ID) (rec *semel.Record, err error) {
	var inner error
	if err := p.hit(ctx, "get", func() { rec, inner = p.disk.Get(ctx, id) }); err != nil {
		return nil, err
	}
	return rec, inner
}

func (p *process) Now(ctx context.Context) (now store.Instant, err error) {
	if err := p.hit(ctx, "now", func() { now, err = p.disk.Now(ctx) }); err != nil {
		return 0, err
	}
	return now, err
}

func (p *process) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if err := p.hit(ctx, "due", func() { page, err = p.disk.Due(ctx, q) }); err != nil {
		return store.DuePage{}, err
	}
	return page, err
}

func (p *process) Purge(ctx context.Context, refs []store.Ref) (n int, err error) {
	if err := p.hit(ctx, "purge", func() { n, err = p.disk.Purge(ctx, refs) }); err != nil {
		return 0, err
	}
	return n, err
}

func (p *process) AppendEvidence(ctx context.Context, entries []store.Entry) (err error) {
	if err := p.hit(ctx, "append evidence", func() { err = p.disk.AppendEvidence(ctx, entries) }); err != nil {
		return err
	}
	return err
}

func (p *process) ReadEvidence(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
	return p.disk.ReadEvidence(ctx, from, limit)
}

func (p *process) FindEvidence(ctx context.Context, s store.Subject, from uint64, limit int) ([]uint64, error) {
	return p.disk.FindEvidence(ctx, s, from, limit)
}

func (p *process) EraseEvidence(ctx context.Context, from, to uint64) error {
	return p.disk.EraseEvidence(ctx, from, to)
}

func (p *process) PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error {
	return p.disk.PutEvidenceTiles(ctx, tiles)
}

func (p *process) EvidenceTile(ctx context.Context, name string) ([]byte, error) {
	return p.disk.EvidenceTile(ctx, name)
}

func (p *process) Close() error { return nil }

// check compares the store with the versions: it has the last of each record, and one
// piece of evidence for each that changed anything but when it is looked at next, in
// their order, and no other.
func (h *history) check(t *testing.T) {
	t.Helper()
	last := map[semel.ID]store.Revision{}
	for i := range h.versions {
		last[h.versions[i].next.ID] = h.versions[i].next.Revision
	}
	for id, want := range last {
		if rec, err := h.Get(t.Context(), id); err != nil || rec.Revision != want {
			t.Errorf("stored is version %s of %s, not %s: %v", rec.Revision, id, want, err)
		}
	}
	entries, err := h.ReadEvidence(t.Context(), 0, 1000)
	must(t, err)
	var want, got []string
	for i := range h.versions {
		v := &h.versions[i]
		if idle(v) {
			continue
		}
		want = append(want, v.prev.Revision.String()+" "+v.next.Revision.String())
	}
	for _, en := range entries {
		f := strings.Fields(string(en.Leaf))
		got = append(got, f[0]+" "+f[1])
	}
	if !slices.Equal(want, got) {
		t.Errorf("the log has %d entries, the record had %d versions that need one:\n%s\n%s", len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// idle reports whether only lease and next look changed.
func idle(v *version) bool {
	a, b := v.prev, v.next
	if a.State != semel.Completed && a.State != semel.Processing || a.Fence != b.Fence {
		return false
	}
	shown := func(r *semel.Record) any {
		if r.Compensation != nil {
			c := *r.Compensation
			c.NextAt = 0
			r.Compensation = &c
		}
		return []any{r.State, r.Disposition, r.Held, r.HeldReason, r.Result, r.Failure, r.Effects, r.Outbox, r.Compensation, r.Confirmation, r.Attempt}
	}
	return reflect.DeepEqual(shown(&a), shown(&b))
}
