package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

const (
	name   = "letters.in"
	door   = "letters"
	budget = time.Second
)

// letter is the head of the items in these tests.
type letter struct {
	From string `json:"from"`
}

// rig is an inbox on a store, and what became of its items.
type rig struct {
	*Inbox[letter]
	t      *testing.T
	engine *semel.Engine

	mu      sync.Mutex
	due     [][]byte
	handled []*Item[letter]
	fail    error // what the handler returns
}

func newRig(t *testing.T, st semel.Store, change ...func(*Options[letter])) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	if r.engine, err = semel.New(st, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.engine.Internal().SetDispatcher(func(rec *semel.Record) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, m := range rec.Outbox {
			if m.State == store.MessagePending {
				r.due = append(r.due, m.Payload)
			}
		}
	})
	opts := Options[letter]{Name: name, Door: door, Principal: "postman", Window: time.Hour, Budget: budget, Handle: r.handle}
	for _, c := range change {
		c(&opts)
	}
	if r.Inbox, err = New(r.engine, opts); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) handle(_ context.Context, it *Item[letter]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handled = append(r.handled, it)
	return r.fail
}

// work handles what is due.
func (r *rig) work() (errs []error) {
	r.mu.Lock()
	due := r.due
	r.due = nil
	r.mu.Unlock()
	for _, payload := range due {
		errs = append(errs, r.Work(context.Background(), payload))
	}
	return errs
}

// want accepts an item and checks the decision and whether the sender has done its part.
func (r *rig) want(it *Item[letter], decision semel.Decision, done bool) Result {
	r.t.Helper()
	res, err := r.Accept(r.t.Context(), it)
	if res.Decision != decision || (err == nil) != done {
		r.t.Errorf("%s: %s, %v, want %s", it.Key, res.Decision, err, decision)
	}
	return res
}

func item(key, body string) *Item[letter] {
	return &Item[letter]{
		Tenant: "acme", Scope: "street", Key: key, Head: letter{From: "alice"}, Body: []byte(body),
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(body)), ReceivedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// faulty is a store whose writes of outcomes can fail, after they were applied or instead,
// or wait.
type faulty struct {
	semel.Store
	mu      sync.Mutex
	fail    error
	applied bool
	hold    chan struct{}
}

func (s *faulty) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	s.mu.Lock()
	fail, applied, hold := s.fail, s.applied, s.hold
	s.mu.Unlock()
	if w.Record.ID.Operation != name || w.Record.State != semel.Completed {
		return s.Store.Apply(ctx, w)
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	if fail != nil {
		if applied {
			_, _, _ = s.Store.Apply(ctx, w) // the answer is lost
		}
		return nil, false, fail
	}
	return s.Store.Apply(ctx, w)
}

func (s *faulty) set(fail error, applied bool, hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.applied, s.hold = fail, applied, hold
}

func TestDuplicates(t *testing.T) {
	r := newRig(t, memstore.New())
	const body = "one\ntwo\x00\n"
	first := r.want(item("1", body), semel.Execute, true)
	if again := r.want(item("1", body), semel.Replay, true); again.Record != first.Record || again.Message != store.MessagePending {
		t.Errorf("the duplicate is %+v, of %+v", again, first)
	}
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if _, err := r.Accept(context.Background(), item("2", body)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	elsewhere := item("1", body)
	elsewhere.Scope = "another street"
	r.want(elsewhere, semel.Execute, true)
	due := slices.Clone(r.due)
	for _, err := range append(r.work(), r.Work(t.Context(), due[0])) { // the last as after a crash
		if err != nil {
			t.Error(err)
		}
	}
	if len(r.handled) != 4 {
		t.Fatalf("%d are handled", len(r.handled))
	}
	got, ids := r.handled[0], map[string]bool{}
	for _, it := range r.handled {
		ids[it.ID] = true
	}
	if len(ids) != 3 || r.handled[3].ID != got.ID {
		t.Errorf("they have the ids %v", ids)
	}
	if want := item("1", body); got.Tenant != want.Tenant || got.Scope != want.Scope || got.Key != want.Key || got.Head != want.Head ||
		!bytes.Equal(got.Body, want.Body) || !got.ReceivedAt.Equal(want.ReceivedAt) {
		t.Errorf("handled %+v", got)
	}
	rec, err := r.engine.Lookup(t.Context(), (&semel.Call{
		Tenant: "acme", Principal: "postman", Scope: "street", Operation: name, Key: "1",
	}).ID(semel.SharePrincipal))
	if err != nil || rec.Door != door || len(rec.Outbox) != 1 || rec.Outbox[0].Destination != name {
		t.Errorf("the record is %+v, %v", rec, err)
	}
}

func TestConflicts(t *testing.T) {
	park := func(o *Options[letter]) { o.OnConflict = ParkConflict }
	t.Run("parked, once for each content", func(t *testing.T) {
		r := newRig(t, memstore.New(), park)
		r.want(item("1", "a"), semel.Execute, true)
		parked := map[semel.ID]bool{}
		for _, body := range []string{"b", "b", "c"} {
			res := r.want(item("1", body), semel.Conflict, true)
			if !errors.Is(res.Err, semel.ErrConflict) || res.First != item("1", "a").Fingerprint || res.Content != item("1", body).Fingerprint {
				t.Errorf("%+v", res)
			}
			parked[res.Parked] = true
		}
		if r.work(); len(r.handled) != 1 || len(parked) != 2 {
			t.Fatalf("%d are handled, %d parked", len(r.handled), len(parked))
		}
		for id := range parked {
			rec, err := r.engine.Lookup(t.Context(), id)
			if err != nil || len(rec.Outbox) != 1 {
				t.Fatalf("%+v, %v", rec, err)
			}
			m := rec.Outbox[0]
			if m.State != store.MessageParked || m.Failure.Code != codeConflict || !strings.Contains(m.Failure.Message, item("1", "a").Fingerprint.String()) {
				t.Errorf("%+v, %+v", m, m.Failure)
			}
			if err := r.Work(t.Context(), m.Payload); err != nil { // an operator replays it
				t.Error(err)
			}
		}
		if len(r.handled) != 3 || r.handled[1].ID == r.handled[2].ID || r.handled[1].Key != "1" {
			t.Errorf("%d are handled", len(r.handled))
		}
	})
	t.Run("dropped", func(t *testing.T) {
		r := newRig(t, memstore.New())
		r.want(item("1", "a"), semel.Execute, true)
		if res := r.want(item("1", "b"), semel.Conflict, true); res.Parked != (semel.ID{}) || res.Err == nil {
			t.Errorf("%+v", res)
		}
		if r.work(); len(r.handled) != 1 {
			t.Errorf("%d are handled", len(r.handled))
		}
	})
	t.Run("too long to be kept", func(t *testing.T) {
		r := newRig(t, memstore.New(), park)
		r.want(item("1", "a"), semel.Execute, true)
		res := r.want(item("1", strings.Repeat("b", MaxBody+1)), semel.Conflict, false)
		if refused, is := errors.AsType[*Refusal](res.Err); !is || refused.Code != CodeTooLong {
			t.Errorf("%+v", res)
		}
	})
	t.Run("told apart", func(t *testing.T) {
		r := newRig(t, memstore.New(), park)
		apart := func(as, body string) *Item[letter] {
			it := item("1", body)
			it.Attributes = store.Attributes{AttributeApart: as}
			return it
		}
		r.want(apart("x", "a"), semel.Execute, true)
		r.want(apart("y", "b"), semel.Execute, true)
		r.want(apart("x", "a"), semel.Replay, true)
		r.want(apart("y", "b"), semel.Replay, true)
		r.want(apart("y", "c"), semel.Conflict, true)
		r.want(apart("x", "d"), semel.Conflict, true)
		r.want(item("1", "e"), semel.Conflict, true)
		if r.work(); len(r.handled) != 2 || r.handled[1].Key != "1:apart:y" {
			t.Errorf("%d are handled", len(r.handled))
		}
	})
}

// TestCrash: a node dies between the two writes of an item, or before the sender has its
// 2xx. Either way the sender delivers again, to another node.
func TestCrash(t *testing.T) {
	for name, applied := range map[string]bool{"before the outcome is kept": false, "after the outcome is kept": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &faulty{Store: memstore.New()}
				st.set(errors.New("the connection is lost"), applied, nil)
				dead := newRig(t, st)
				ctx, cancel := Within(t.Context(), budget)
				if _, err := dead.Accept(ctx, item("1", "a")); err == nil && !applied {
					t.Error("it is accepted")
				}
				cancel()
				<-time.After(time.Minute) // until that node gives up
				st.set(nil, false, nil)
				next := newRig(t, st.Store)
				want := semel.Execute
				if applied {
					want = semel.Replay
				}
				next.want(item("1", "a"), want, true)
				next.want(item("1", "a"), semel.Replay, true)
				page, err := next.engine.Search(t.Context(), store.Query{Operation: "letters.in"})
				if err != nil || len(page.Records) != 1 || len(page.Records[0].Outbox) != 1 {
					t.Errorf("%+v, %v", page, err)
				}
			})
		})
	}
}

// TestLeaseOfACrash: an attempt that a dead node has begun doesn't hold up its item for
// long.
func TestLeaseOfACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faulty{Store: memstore.New()}
		hold := make(chan struct{})
		st.set(nil, false, hold)
		dead := newRig(t, st)
		ctx, cancel := Within(t.Context(), budget)
		defer cancel()
		if err := Each(ctx, []*Item[letter]{item("1", "a")}, func(ctx context.Context, it **Item[letter]) error {
			_, err := dead.Accept(ctx, *it)
			return err
		}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		next := newRig(t, st.Store)
		next.want(item("1", "a"), semel.InFlight, false)
		<-time.After(acceptLease)
		next.want(item("1", "a"), semel.Execute, true)
		close(hold)
		synctest.Wait() // the dead one wakes up, too late
		if next.work(); len(next.handled) != 1 || len(dead.due) != 0 {
			t.Errorf("%d are handled, and %d due at the other node", len(next.handled), len(dead.due))
		}
	})
}

// TestASilentStore: a store that answers nothing is no answer. The sender waits for the
// budget and no longer, and what has begun goes on.
func TestASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faulty{Store: memstore.New()}
		hold := make(chan struct{})
		st.set(nil, false, hold)
		r := newRig(t, st)
		deliver := func() error {
			gone, cancel := context.WithCancel(t.Context())
			cancel() // the sender hangs up
			ctx, stop := Within(gone, budget)
			defer stop()
			return Each(ctx, []int{1, 2, 3}, func(ctx context.Context, n *int) error {
				_, err := r.Accept(ctx, item(fmt.Sprint(*n), "a"))
				return err
			})
		}
		var all sync.WaitGroup
		for range 2 { // the second is a duplicate
			all.Go(func() {
				start := time.Now()
				if err := deliver(); err == nil || time.Since(start) != budget {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		}
		all.Wait()
		close(hold)
		synctest.Wait()
		if err := deliver(); err != nil {
			t.Error(err)
		}
		if r.work(); len(r.handled) != 3 {
			t.Errorf("%d are handled", len(r.handled))
		}
	})
}

func TestUnknownPayloads(t *testing.T) {
	r := newRig(t, memstore.New())
	for _, payload := range []string{
		"", "\n", "{}\n", "[]\nbody", `{"id":"1","key":"k"}`, "{\"id\":\"1\"}\nbody", "{\"key\":\"k\"}\nbody", "{\"id\":1,\"key\":\"k\"}\n", "{\"id\":\"1\",\"key\":\"k\",\"head\":7}\nbody",
	} {
		refused, is := errors.AsType[*Refusal](r.Work(t.Context(), []byte(payload)))
		if !is || refused.Code != CodeUnreadable {
			t.Errorf("%q: %v", payload, refused)
		}
	}
	if len(r.handled) != 0 {
		t.Errorf("%d are handled", len(r.handled))
	}
}

func TestErrorsOfHandlers(t *testing.T) {
	r := newRig(t, memstore.New())
	r.want(item("1", "a"), semel.Execute, true)
	cause := errors.New("no stamp")
	for _, fail := range []error{&Refusal{Code: "stamp", Err: cause}, &Later{After: time.Minute, Err: cause}, cause} {
		r.fail = fail
		due := r.due[0]
		if err := r.Work(t.Context(), due); err != fail || !errors.Is(err, cause) || !strings.Contains(err.Error(), "no stamp") {
			t.Errorf("%v became %v", fail, err)
		}
	}
}

// TestNow does what an item is for while it is accepted.
func TestNow(t *testing.T) {
	r := newRig(t, memstore.New(), func(o *Options[letter]) { o.OnAbandoned, o.Lease = semel.HoldAbandoned, time.Minute })
	if op, ok := r.engine.Internal().Operation(name); !ok || op.Lease != time.Minute || op.OnAbandoned != semel.HoldAbandoned {
		t.Errorf("%+v", op)
	}
	now := func(key string, err error) *Item[letter] {
		it := item(key, "a")
		it.Now = func(context.Context) error {
			if it.ID == "" {
				t.Error("it has no id")
			}
			return err
		}
		return it
	}
	r.want(now("done", nil), semel.Execute, true)
	r.want(now("done", errors.New("twice")), semel.Replay, true)
	r.want(now("again", errors.New("not now")), semel.Execute, false)
	r.want(now("again", nil), semel.Execute, true)
	r.want(now("never", semel.Rejected("no", errors.New("never"))), semel.Execute, true)
	if res := r.want(now("never", nil), semel.Replay, true); res.Err == nil {
		t.Error("what was refused is not reported")
	}
	r.want(now("unknown", semel.Unknown(errors.New("no answer"))), semel.Execute, false)
	r.want(now("unknown", nil), semel.Held, false)
	if len(r.due) != 0 {
		t.Errorf("%d are due", len(r.due))
	}
}

// TestWhatWasNotDoneIsNotParked, though another system's error inside says that it doesn't know.
func TestWhatWasNotDoneIsNotParked(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		parked bool
	}{
		"unknown": {semel.Unknown(errors.New("no answer")), true},
		"aborted": {semel.Aborted(fmt.Errorf("the index: %w", semel.ErrUnknown)), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, memstore.New(), func(o *Options[letter]) { o.OnConflict = ParkConflict })
			it := item("1", "a")
			it.Now = func(context.Context) error { return c.err }
			if res := r.want(it, semel.Execute, false); (res.Parked != semel.ID{}) != c.parked {
				t.Errorf("parked as %v", res.Parked)
			}
		})
	}
}

func TestPeek(t *testing.T) {
	r := newRig(t, memstore.New())
	peek := func(body string, want semel.Decision) {
		t.Helper()
		if res, err := r.Peek(t.Context(), item("1", body)); res.Decision != want || err != nil {
			t.Errorf("%s: %+v, %v", body, res, err)
		}
	}
	peek("a", semel.Execute)
	peek("b", semel.Execute) // the first look has left nothing
	r.want(item("1", "a"), semel.Execute, true)
	peek("a", semel.Replay)
	peek("b", semel.Conflict)
	if r.work(); len(r.handled) != 1 {
		t.Errorf("%d are handled", len(r.handled))
	}
}

func TestOptions(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.Background())
	if _, err := New(engine, Options[letter]{Name: name}); err == nil {
		t.Error("options are missing")
	}
	in, err := New(engine, Options[letter]{Name: name, Door: door, Principal: "p", Window: time.Hour, Budget: budget, Handle: func(context.Context, *Item[letter]) error { return nil }})
	if op, ok := engine.Internal().Operation(name); err != nil || in == nil || !ok || op.Lease != acceptLease || op.OnAbandoned != semel.RetryAbandoned {
		t.Errorf("%+v, %v", op, err)
	}
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		wrong := errors.New("wrong")
		err := Each(t.Context(), make([]int, 5*atOnce), func(context.Context, *int) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			defer mu.Unlock()
			running--
			return wrong
		})
		if !errors.Is(err, wrong) || most != atOnce || running != 0 {
			t.Errorf("%v, %d at once, %d still run", err, most, running)
		}
	})
	if err := Each(t.Context(), nil, func(context.Context, *int) error { return errors.New("of nothing") }); err != nil {
		t.Error(err)
	}
}

// After its window an item that is remembered for longer is recognised, and its sender has done its
// part.
func TestARememberedItemIsRecognised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memstore.New(), func(o *Options[letter]) { o.Remember = 24 * time.Hour })
		r.want(item("a", "hello"), semel.Execute, true)
		r.work()
		rec := r.handled[0]
		_, err := r.engine.Internal().SettleMessage(t.Context(), r.id("a"), r.message(r.id("a")), store.MessageFinding{State: store.MessageDelivered})
		if err != nil {
			t.Fatal(err)
		}
		for _, swept := range []bool{false, true} {
			if !swept {
				<-time.After(time.Hour)
			} else if n, err := r.engine.Sweep(t.Context()); err != nil || n.Forgotten != 1 {
				t.Fatal(n, err)
			}
			if res := r.want(item("a", "hello"), semel.Replay, true); res.Message != store.MessageDelivered {
				t.Errorf("swept %v: its message is %s", swept, res.Message)
			}
			if res, err := r.Peek(t.Context(), item("a", "hello")); err != nil || res.Decision != semel.Replay {
				t.Errorf("swept %v: it is seen as %s, %v", swept, res.Decision, err)
			}
			r.want(item("a", "something else"), semel.Conflict, true)
		}
		if errs := r.work(); len(errs) > 0 || len(r.handled) != 1 || string(rec.Body) != "hello" {
			t.Errorf("handled %d times, %v", len(r.handled), errs)
		}
		<-time.After(23 * time.Hour)
		r.want(item("a", "hello"), semel.Execute, true)
	})
}

func (r *rig) id(key string) semel.ID {
	call := r.call(item(key, ""), key)
	return call.ID(semel.SharePrincipal)
}

func (r *rig) message(id semel.ID) string {
	rec, err := r.engine.Lookup(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec.Outbox[0].ID
}

// TestACopyAnswersForItsOwnContent: once the record that was held has another content, the copy of
// the first is refused, and the other has a copy too.
func TestACopyAnswersForItsOwnContent(t *testing.T) {
	r := newRig(t, memstore.New(), func(o *Options[letter]) { o.OnConflict, o.OnAbandoned = ParkConflict, semel.HoldAbandoned })
	accept := func(body string) (Result, []byte) {
		it := item("1", body)
		it.Now = func(context.Context) error { return semel.Unknown(errors.New("no answer")) }
		res := r.want(it, semel.Execute, false)
		rec, err := r.engine.Lookup(t.Context(), res.Parked)
		if err != nil {
			t.Fatalf("%s isn't parked: %v", body, err)
		}
		return res, rec.Outbox[0].Payload
	}
	res, first := accept("a")
	if _, err := r.engine.Settle(t.Context(), res.Record, semel.Settlement{Outcome: semel.DispositionAborted}, "it was not done"); err != nil {
		t.Fatal(err)
	}
	_, second := accept("b")
	if refused, ok := errors.AsType[*Refusal](r.Work(t.Context(), first)); !ok || refused.Code != CodeHeld || len(r.handled) != 0 {
		t.Errorf("the first copy: %v, handled %v", refused, r.handled)
	}
	if err := r.Work(t.Context(), second); err != nil || len(r.handled) != 1 {
		t.Errorf("the second copy: %v, handled %v", err, r.handled)
	}
}
