package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// changeable is a store in the place of which somebody can put another.
type changeable struct{ *memstore.Store }

func (c *changeable) Extras() store.Extras {
	x := c.Store.Extras()
	x.Evidence = c
	return x
}

// snapshot is what a store has of a log at one time.
type snapshot struct {
	head    *semel.Record // nil: none
	entries []store.Entry
}

var headID = semel.ID{Operation: "semel.cell", Key: "evidence"}

func (c *changeable) snapshot(t *testing.T) (s snapshot) {
	t.Helper()
	head, err := c.Get(t.Context(), headID)
	switch {
	case err == nil:
		s.head = head
	case !errors.Is(err, semel.ErrNotFound):
		t.Fatal(err)
	}
	if s.entries, err = c.ReadEvidence(t.Context(), 0, 1000); err != nil {
		t.Fatal(err)
	}
	return s
}

// restore puts a store with what a snapshot has in the place of the one before.
func (c *changeable) restore(t *testing.T, s snapshot) {
	t.Helper()
	st := memstore.New()
	if err := st.AppendEvidence(t.Context(), s.entries); err != nil {
		t.Fatal(err)
	}
	if s.head != nil {
		if _, ok, err := st.Apply(t.Context(), store.Write{Record: s.head}); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	c.Store = st
}

func (c *changeable) add(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := c.AppendEvidence(t.Context(), []store.Entry{{Leaf: fmt.Appendf(nil, `{"artifact_id":"ev_%d"}`, i)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// putBack are the ways to put a log back without its keys.
type putBack struct{ begun, older, newest snapshot }

func (p putBack) ways() map[string]snapshot {
	changed := append([]store.Entry{{Leaf: []byte(`{"artifact_id":"ev_forged"}`)}}, p.newest.entries[1:]...)
	return map[string]snapshot{
		"an older head, the entries behind it deleted": p.older,
		"an older head, the entries behind it left":    {p.older.head, p.newest.entries},
		"a head that says nothing was signed yet":      {p.begun.head, changed},
		"everything deleted":                           {},
	}
}

// signedThrice makes a log that was signed three times: at 0, 5 and 9 entries.
func signedThrice(t *testing.T, st *changeable, log *evidence.Log) (p putBack) {
	t.Helper()
	p.begun = st.snapshot(t)
	st.add(t, 0, 5)
	if err := log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.older = st.snapshot(t)
	st.add(t, 5, 9)
	if err := log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.newest = st.snapshot(t)
	return p
}

func TestALogThatWasPutBackIsNotSigned(t *testing.T) {
	keys := newKeys(t)
	st := &changeable{memstore.New()}
	file := filepath.Join(t.TempDir(), "evidence.key.signed")
	open := func() *evidence.Log {
		t.Helper()
		l, err := evidence.New(st, keys, &evidence.Options{SignedFile: file})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	p := signedThrice(t, st, open())
	for name, s := range p.ways() {
		t.Run(name, func(t *testing.T) {
			st.restore(t, s)
			for range 2 { // starting again changes nothing
				l := open()
				if fault := l.Fault(); !errors.Is(fault, evidence.ErrTampered) || !strings.Contains(fault.Error(), file) {
					t.Errorf("when it is opened: %v", fault)
				}
				if err := l.Integrate(t.Context()); !errors.Is(err, evidence.ErrTampered) {
					t.Errorf("it is signed: %v", err)
				}
			}
		})
	}
	t.Run("put right again", func(t *testing.T) {
		st.restore(t, p.newest)
		st.add(t, 9, 10)
		l := open()
		if err := errors.Join(l.Fault(), l.Integrate(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Run("by its owner, who moves the file away", func(t *testing.T) {
		st.restore(t, p.older)
		if err := os.Rename(file, file+".before"); err != nil {
			t.Fatal(err)
		}
		st.add(t, 20, 21)
		l := open()
		if err := errors.Join(l.Fault(), l.Integrate(t.Context())); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "example.com/log\n6\n") {
			t.Errorf("from then on it knows %q, %v", text, err)
		}
	})
}

func TestALogThatIsPutBackUnderARunningNodeIsNotSigned(t *testing.T) {
	keys := newKeys(t)
	first := &changeable{memstore.New()}
	l, err := evidence.New(first, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range signedThrice(t, first, l).ways() {
		st := &changeable{memstore.New()}
		l, err := evidence.New(st, keys, nil)
		if err != nil {
			t.Fatal(err)
		}
		signedThrice(t, st, l)
		st.restore(t, s)
		if err := l.Integrate(t.Context()); !errors.Is(err, evidence.ErrTampered) {
			t.Errorf("%s: it is signed: %v", name, err)
		}
	}
}

// TestNodesRememberWhatOthersSign has one node sign, and another that only looks on
// find the log put back.
func TestNodesRememberWhatOthersSign(t *testing.T) {
	keys := newKeys(t)
	st := &changeable{memstore.New()}
	leader, err := evidence.New(st, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	follower, err := evidence.New(st, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := signedThrice(t, st, leader)
	if err := evidence.LookOn(t.Context(), follower); err != nil {
		t.Fatal(err)
	}
	st.restore(t, p.older)
	if err := evidence.LookOn(t.Context(), follower); !errors.Is(err, evidence.ErrTampered) {
		t.Errorf("a node that does not sign at the moment finds %v", err)
	}
}

func TestNothingIsSignedThatCannotBeRemembered(t *testing.T) {
	keys := newKeys(t)
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "signed")
	st := &changeable{memstore.New()}
	var told []error
	opts := &evidence.Options{SignedFile: file, OnError: func(err error) { told = append(told, err) }}
	l, err := evidence.New(st, keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	st.add(t, 0, 1)
	if err := l.Integrate(t.Context()); err != nil || len(told) != 1 {
		t.Errorf("%v, and in the background %v", err, told)
	}
	before := st.snapshot(t)
	st.add(t, 1, 2)
	if err := l.Integrate(t.Context()); err == nil || !strings.Contains(err.Error(), "signed_file") {
		t.Errorf("it signs on: %v", err)
	}
	if now := st.snapshot(t); now.head.Revision != before.head.Revision {
		t.Error("there is another head")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Integrate(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "example.com/log\n2\n") {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("files are left over: %v, %v", left, err)
	}
}

func TestAFileThatIsNotThisLogsIsRefused(t *testing.T) {
	other, err := evidence.GenerateKeys("example.com/another")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "signed")
	open := func(keys *evidence.Keys, file string) error {
		l, err := evidence.New(memstore.New(), keys, &evidence.Options{SignedFile: file})
		if err == nil {
			err = l.Integrate(context.Background())
		}
		return err
	}
	if err := open(other, file); err != nil {
		t.Fatal(err)
	}
	if err := open(newKeys(t), file); err == nil || !strings.Contains(err.Error(), "example.com/another") {
		t.Errorf("of another log: %v", err)
	}
	if err := os.WriteFile(file, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(newKeys(t), file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("of something else: %v", err)
	}
	if err := open(newKeys(t), filepath.Join(file, "below")); err == nil || !strings.Contains(err.Error(), "signed_file") {
		t.Errorf("where nothing can be written: %v", err)
	}
}
