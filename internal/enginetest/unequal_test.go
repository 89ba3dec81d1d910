package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// Several engines with unequal declarations, each with its own reading of the store's
// clock and calls to the store that stall, fail and arrive late, make the same calls.
// Some of them die. What was promised holds for all of them together.

const unequalLease = 3 * time.Second

// party is the world that the engines of one history share.
type party struct {
	t    *testing.T
	st   *memstore.Store
	rng  *rand.Rand // used under mu
	mu   sync.Mutex
	log  []string
	calm bool // the faults are over

	effects  map[string]int // arrivals at the provider, by effect key
	running  map[semel.ID]context.Context
	fences   map[semel.ID]int64
	answers  map[semel.ID]string
	messages map[string]int // deliveries, by id

	ran     map[string]int // handlers, by identity and attempt
	written lives
}

func (p *party) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%8v ", time.Since(p.began()).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (p *party) began() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) } // of every bubble

func (p *party) violated(format string, args ...any) {
	p.t.Errorf(format+"\n%s", append(args, strings.Join(p.log, "\n"))...)
}

// chance is true once in n, while there are faults.
func (p *party) chance(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.calm && p.rng.IntN(n) == 0
}

func (p *party) upTo(d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rng.Int64N(int64(d)))
}

// view is the store as one engine sees it.
type view struct {
	p    *party
	name string
	lag  time.Duration // of its reading of the clock
	dead context.Context
	die  context.CancelFunc
}

var errParty = errors.New("no answer")

// reach is the way to the store: it may be long, and lead nowhere.
func (v *view) reach(ctx context.Context) error {
	if v.dead.Err() != nil {
		<-ctx.Done()
		return ctx.Err()
	}
	if !v.p.chance(5) {
		return nil
	}
	select {
	case <-time.After(v.p.upTo(2 * unequalLease)):
	case <-ctx.Done():
		return ctx.Err()
	}
	if v.p.chance(3) {
		return errParty
	}
	return nil
}

func (v *view) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if cur, err := v.p.st.Get(ctx, w.Record.ID); err == nil && renews(cur, w.Record) {
		// The holder's own writes wait for it at a mutex, which virtual time takes for work.
		if v.dead.Err() != nil || v.p.chance(3) {
			return nil, false, errParty
		}
		return v.p.write(ctx, w)
	}
	if v.dead.Err() == nil && v.p.chance(12) { // it arrives when nobody waits any more, or hardly
		time.AfterFunc(v.p.upTo(3*unequalLease), func() { _, _, _ = v.p.write(context.Background(), w) })
		return nil, false, errParty
	}
	if err := v.reach(ctx); err != nil {
		return nil, false, err
	}
	cur, applied, err := v.p.write(ctx, w)
	if err := v.reach(ctx); err != nil {
		return nil, false, err
	}
	return cur, applied, err
}

func renews(cur, next *semel.Record) bool {
	return next.State == semel.Processing && !next.Held && next.Fence == cur.Fence && slices.Equal(names(next), names(cur))
}

func names(rec *semel.Record) (list []string) {
	for _, ef := range rec.Effects {
		list = append(list, ef.Name+string(ef.State))
	}
	return list
}

func (v *view) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	rec, err := v.p.st.Get(ctx, id)
	if err := v.reach(ctx); err != nil {
		return nil, err
	}
	return rec, err
}

func (v *view) Now(ctx context.Context) (store.Instant, error) {
	now, err := v.p.st.Now(ctx)
	return now.Add(-v.lag), err
}

func (v *view) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := v.p.st.Due(ctx, q)
	if err := v.reach(ctx); err != nil {
		return store.DuePage{}, err
	}
	return page, err
}

func (v *view) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	if err := v.reach(ctx); err != nil {
		return 0, err
	}
	return v.p.st.Purge(ctx, refs)
}

func (v *view) Extras() store.Extras { return store.Extras{Due: v, Purge: v} }

func (v *view) Close() error { return nil }

// charge is the provider. A call arrives after a while, unless its caller was told to
// stop, or has died, before.
func (p *party) charge(ctx context.Context, v *view, key string) (string, error) {
	select {
	case <-time.After(p.upTo(unequalLease)):
	case <-ctx.Done():
		return "", ctx.Err()
	case <-v.dead.Done():
		<-ctx.Done()
		return "", ctx.Err()
	}
	p.mu.Lock()
	p.effects[key]++
	p.note("** effect %s by %s", key[:6], v.name)
	if p.effects[key] > 1 {
		p.violated("the effect %s happened %d times", key[:6], p.effects[key])
	}
	p.mu.Unlock()
	if p.chance(6) {
		<-time.After(p.upTo(2 * unequalLease))
		return "", errors.New("the answer was lost")
	}
	return "ch_" + key[:6], nil
}

// ask is the reconciler: it knows what has arrived.
func (p *party) ask(_ context.Context, held semel.Record) (s semel.Settlement, err error) {
	if p.chance(3) {
		<-time.After(p.upTo(2 * unequalLease))
		return s, errParty
	}
	if p.chance(6) {
		panic("a bug of the reconciler")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ef := range held.Effects {
		if ef.State != store.EffectStarted {
			continue
		}
		f := store.EffectFinding{Name: ef.Name, State: store.EffectRefuted}
		if p.effects[ef.Key] > 0 {
			f.State, f.Result = store.EffectConfirmed, semel.Result{Data: []byte(`"ch_` + ef.Key[:6] + `"`)}
		}
		s.Effects = append(s.Effects, f)
	}
	p.note("!! asked about %s: %+v", held.ID.Key, s.Effects)
	return s, nil
}

// member is one process.
type member struct {
	*view
	engine *semel.Engine
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// join starts a process of one kind.
func (p *party) join(name string, lag time.Duration) *member {
	v := &view{p: p, name: name, lag: lag}
	v.dead, v.die = context.WithCancel(context.Background())
	pay := semel.Operation{Name: "pay", Lease: unequalLease, Window: time.Hour, Effects: []string{"charge"}, Reconcile: p.ask, ReconcileEvery: unequalLease}
	hold := semel.Operation{Name: "hold", Lease: unequalLease, Window: time.Hour}
	refund := pay
	refund.Name, refund.Effects = "refund", []string{"refund"}
	pay.Compensation, pay.Compensate = refund.Name, func(ctx context.Context, x semel.Execution, _ semel.Record) (semel.Result, error) {
		if p.chance(6) {
			return semel.Result{}, semel.Aborted(errParty)
		}
		_, err := semel.Effect(ctx, x, "refund", func(ctx context.Context, key string) (string, error) { return p.charge(ctx, v, key) })
		return semel.Result{}, err
	}
	var ops []semel.Operation
	switch kind, _, _ := strings.Cut(name, "-"); kind {
	case "full":
		ops = []semel.Operation{pay, hold, refund}
	case "old": // which keeps no ledger of its own, asks nobody and undoes nothing
		pay.Effects, pay.Reconcile, pay.Compensation, pay.Compensate = nil, nil, "", nil
		ops = []semel.Operation{pay}
	case "stranger":
		ops = []semel.Operation{{Name: "other"}}
	}
	e, err := semel.New(v, &semel.Options{Operations: ops, Node: name})
	must(p.t, err)
	m := &member{view: v, engine: e}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if strings.HasPrefix(name, "full") {
		d, err := dispatch.New(e, dispatch.Options{Destinations: map[string]dispatch.Destination{"shop": {
			Lease: unequalLease, Timeout: unequalLease / 2,
			Sender: dispatch.SenderFunc(func(_ context.Context, x dispatch.Delivery) error {
				if p.chance(4) {
					return errParty
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.messages[x.Message.ID]++
				return nil
			}),
		}}})
		must(p.t, err)
		m.done.Go(func() { _ = d.Run(ctx) })
	}
	m.done.Go(func() { _ = e.Run(ctx, time.Second) })
	return m
}

// deliver makes a call, and holds what comes of it against what is known.
func (m *member) deliver(c semel.Call) {
	p := m.p
	id := identity(c)
	ans, err := m.engine.Do(context.Background(), c, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		p.mu.Lock()
		p.note("-> %s runs %s under %d", m.name, id.Key, x.Fence())
		if other := p.running[id]; other != nil && other.Err() == nil && m.dead.Err() == nil {
			p.violated("%s runs %s while another handler does", m.name, id.Key)
		}
		if p.ran[fmt.Sprint(id, x.Number())]++; p.ran[fmt.Sprint(id, x.Number())] > 1 {
			p.violated("attempt %d of %s runs twice", x.Number(), id.Key)
		}
		if x.Fence() <= p.fences[id] {
			p.violated("fence %d of %s comes after %d", x.Fence(), id.Key, p.fences[id])
		}
		p.fences[id], p.running[id] = x.Fence(), ctx
		p.proved(x.(*semel.Attempt).Record())
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.running[id] == ctx {
				delete(p.running, id)
			}
		}()
		if m.dead.Err() != nil {
			<-ctx.Done()
			return semel.Result{}, ctx.Err()
		}
		if err := semel.Send(x, semel.Message{Name: "m", Destination: "shop", Order: "lane", Payload: []byte(id.Key)}); err != nil {
			return semel.Result{}, err
		}
		got, err := semel.Effect(ctx, x, "charge", func(ctx context.Context, key string) (string, error) { return p.charge(ctx, m.view, key) })
		said := fmt.Sprintf("%s of %v", got, p.upTo(time.Hour)) // no two runs say the same
		if err == nil && strings.HasSuffix(id.Key, "5") {
			return semel.Result{Data: []byte(said)}, semel.Rejected("sold_out", errors.New(said))
		}
		return semel.Result{Data: []byte(said)}, err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("<- %s %s: %s %v", m.name, id.Key, ans.Decision, err)
	if ans.Record == nil || m.dead.Err() != nil || ans.Record.Disposition != store.DispositionCompleted && ans.Record.Disposition != store.DispositionRejected {
		return
	}
	got := said(ans.Record)
	if was, known := p.answers[id]; known && was != got {
		p.violated("%s was answered %s, and now %s", id.Key, was, got)
	}
	p.answers[id] = got
}

// proved looks at a call that begins to run: what was tried before has proved by then what
// it came to, or the call would be executed twice.
func (p *party) proved(rec *semel.Record) {
	for _, ef := range rec.Effects {
		if ef.State == store.EffectStarted {
			p.violated("%s runs again, and its effect %s may have happened", rec.ID.Key, ef.Name)
		}
	}
	for _, at := range rec.Earlier {
		if rec.ID.Operation == "hold" && at.Disposition == semel.DispositionAbandoned {
			p.violated("%s runs again after attempt %d, whose holder is gone", rec.ID.Key, at.Number)
		}
	}
}

// said is all that an answer has of an outcome.
func said(rec *semel.Record) string {
	return fmt.Sprintf("%s %s %q %+v", rec.State, rec.Disposition, rec.Result.Data, rec.Failure)
}

func TestUnequalEnginesKeepOnePromise(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2", "CORE-FIELD.1", "CORE-FIELD.2", "CORE-SVC.1", "CORE-SVC.2", "IDS-XI.S3")
	histories := 60
	if testing.Short() {
		histories = 15
	}
	held, undone := 0, 0
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) {
			h, u := unequal(t, seed)
			held, undone = held+h, undone+u
		})
		if t.Failed() {
			t.Fatalf("in the history of seed %d", seed)
		}
	}
	if undone == 0 {
		t.Error("nothing was compensated")
	}
	t.Logf("%d histories; %d calls are held at their end, %d were compensated", histories, held, undone)
}

// undone holds a compensation against what has arrived: it is made once, unless it is held.
func (p *party) undone(id semel.ID, c *store.Compensation) {
	rec, err := p.st.Get(context.Background(), c.ID(id.Tenant))
	if errors.Is(err, semel.ErrNotFound) {
		p.violated("the compensation of %s is %s, and was never begun", id.Key, c.State)
		return
	}
	must(p.t, err)
	if n := p.effects[semel.EffectKey(rec, "refund")]; !rec.Held && (c.State != store.CompensationDone || n != 1) {
		p.violated("the compensation of %s is %s, its call %s %s, and the refund was made %d times", id.Key, c.State, rec.State, rec.Disposition, n)
	}
}

func identity(c semel.Call) semel.ID {
	return semel.ID{Tenant: c.Tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key}
}

// unequal plays one history, and returns how many calls are held at its end, and how many
// were compensated.
func unequal(t *testing.T, seed uint64) (held, undone int) {
	p := &party{
		t: t, st: memstore.New(), rng: rand.New(rand.NewPCG(seed, 1)), effects: map[string]int{}, running: map[semel.ID]context.Context{},
		ran: map[string]int{}, fences: map[semel.ID]int64{}, answers: map[semel.ID]string{}, messages: map[string]int{},
	}
	var members []*member
	for i, kind := range []string{"full", "full", "old", "stranger"} {
		members = append(members, p.join(fmt.Sprintf("%s-%d", kind, i), p.upTo(200*time.Millisecond)))
	}
	var calls []semel.Call
	for i := range 6 {
		for _, op := range []string{"pay", "hold"} {
			calls = append(calls, semel.Call{Tenant: "t", Principal: "p", Operation: op, Key: fmt.Sprint(op, i), Fingerprint: payload("x")})
		}
	}
	var clients sync.WaitGroup
	for _, c := range calls {
		for range 3 {
			from := p.upTo(20 * time.Second)
			clients.Go(func() {
				<-time.After(from)
				for range 12 {
					m := members[int(p.upTo(3))]
					m.deliver(c)
					if c.Operation == "pay" && p.upTo(4) == 0 { // once in four times
						_, _ = members[p.upTo(2)].engine.Compensate(context.Background(), identity(c), "operator", "test")
					}
					<-time.After(p.upTo(10 * time.Second))
				}
			})
		}
	}
	clients.Go(func() {
		<-time.After(10*time.Second + p.upTo(20*time.Second))
		p.mu.Lock()
		p.note("!! %s dies", members[1].name)
		p.mu.Unlock()
		members[1].die()
	})
	clients.Wait()
	p.mu.Lock()
	p.calm = true
	p.mu.Unlock()
	last := p.join("full-last", 0)
	pass(10 * time.Minute)
	for _, c := range calls {
		id := identity(c)
		rec, err := p.st.Get(context.Background(), id)
		if errors.Is(err, semel.ErrNotFound) {
			continue // never claimed
		}
		must(t, err)
		now, _ := p.st.Now(context.Background())
		switch {
		case rec.Held:
			held++
			if rec.Policy.Reconcile && rec.NextAt == 0 {
				p.violated("%s is held, and nobody looks at it again", id.Key)
			}
		case rec.State == semel.Processing && now.Sub(rec.LeaseUntil) > time.Minute:
			p.violated("%s is still processing", id.Key)
		case rec.State == semel.Completed:
			for _, m := range rec.Outbox {
				if m.State != store.MessageDelivered && m.State != store.MessageParked || m.State == store.MessageDelivered && p.messages[m.ID] == 0 {
					p.violated("the message of %s is %s and was delivered %d times", id.Key, m.State, p.messages[m.ID])
				}
			}
		}
		if c := rec.Compensation; c != nil {
			p.undone(id, c)
			undone++
		}
		if was, known := p.answers[id]; known && was != said(rec) {
			p.violated("%s was answered %s, and %s is kept", id.Key, was, said(rec))
		}
	}
	for _, m := range append(members, last) {
		m.die()
		m.stop()
	}
	for _, m := range append(members, last) {
		must(t, m.engine.Close(context.Background()))
		m.done.Wait()
	}
	pass(5 * time.Minute) // for what waits for a dead store
	return held, undone
}
