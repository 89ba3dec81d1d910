package semel

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// turnWait is how long a delivery waits for its turn: a dozen others can be refused in
	// that time by an upstream that takes a third of a second, and a client that gives up
	// after ten seconds still gets an answer.
	turnWait = 5 * time.Second
	// turnLasts is how long a delivery may take to claim when its turn has come, such as to
	// send its body. Then the next may claim as well: whoever sends slowly must not keep
	// the others waiting.
	turnLasts = 2 * time.Second
	// turnRetry is when to ask again if there was no place, or no turn.
	turnRetry = time.Second
	// maxInLine bounds the deliveries that wait at one key, and with them their memory and
	// connections. A caller from a network with a place is 16th at most.
	maxInLine = 16
)

// turn is a delivery's place in the line of its key.
type turn struct {
	number uint64        // of the delivery; 0: it takes no turns
	until  time.Duration // when it stops waiting, by the engine's clock
	share  Share         // of its operation, which may be declared anew meanwhile
}

// turns orders the deliveries of callers whom nobody has verified. While an attempt runs,
// deliveries with another credential wait in line, fairly by network. When it has ended, the
// next one may claim, and the network that had its turn goes to the end: asking all the time
// gets a caller no more turns than asking once.
//
// The queue is this engine's alone, and it only says who waits: the stored record decides what
// a delivery gets.
type turns struct {
	last  atomic.Uint64 // number
	seats seats[[16]byte]

	mu    sync.Mutex
	lines map[ID]line
}

// line is the line at one key. There is one while an attempt runs or somebody waits.
type line struct {
	holder  uint64   // the number of the delivery that has the turn
	boundTo string   // of the holder
	network [16]byte // of the holder
	claimed bool     // the holder has claimed; its turn lasts until the attempt ends
	until   time.Duration
	waiting *queue // nil: nobody has ever waited
}

// queue holds the deliveries that wait at one key, by network, the next one first.
type queue struct {
	places []place
	count  int
}

type place struct {
	network [16]byte
	waiters []*waiter
}

type waiter struct {
	number  uint64
	boundTo string
	over    chan bool // gets whether the waiter's turn has come, or it must leave
}

// Turn waits until it's the turn of a delivery that is bound to an unverified caller, and
// reports whether it is. Others don't wait. If it is, go on with the call, and call EndTurn
// when its attempt has ended, or when there is none. If it isn't, the delivery gets ans;
// ctx may have ended.
//
// A delivery waits while an attempt runs under another credential, for some seconds, in the
// order of arrival. Each [Call].Network has a place in the line before any has a second
// one, and a delivery that finds no place doesn't wait. Call Turn before you read the caller's
// payload, so that waiting deliveries have cost little. Doer of package door takes turns for
// all calls that have taken none.
func (in Internal) Turn(ctx context.Context, call *Call) (ans Answer, ok bool) {
	e := in.engine
	op, known := (*e.ops.Load())[call.Operation]
	if call.BoundTo == "" || call.turn.number != 0 || !known || op.Class == ReadOnly {
		return Answer{}, true
	}
	began := e.elapsed()
	call.turn = turn{e.turns.last.Add(1), began + turnWait, op.Share}
	if e.turns.free(call) {
		return Answer{}, true
	}
	d := delivery{engine: e, op: op, call: *call, id: call.ID(op.Share), began: began}
	if d.takeTurn(ctx) || e.turns.free(call) {
		return Answer{}, true
	}
	d.ans = Answer{Decision: InFlight, Record: &Record{ID: d.id}, RetryAfter: turnRetry}
	var err error
	if d.at, err = e.read(ctx); err == nil {
		d.decided(ctx)
	}
	return d.ans, false
}

// EndTurn lets the next delivery have its turn, if it was this one's. It does nothing for
// a call that has taken none.
func (in Internal) EndTurn(call *Call) {
	if e := in.engine; call.turn.number != 0 {
		e.turns.end(call, e.elapsed())
	}
}

// myTurn lets a delivery claim only if it's its turn, and has it wait for that. One that has
// taken no turn always may.
func (d *delivery) myTurn(ctx, calls context.Context) (next progress, err error) {
	switch turns := &d.engine.turns; {
	case d.call.turn.number == 0 || turns.claim(&d.call):
		return proceed, nil
	case !d.looked: // perhaps there is an outcome already
		return startOver, d.look(calls)
	case d.takeTurn(ctx) || turns.over(&d.call):
		return startOver, d.look(ctx)
	}
	d.foreign = true
	d.ans.Decision, d.ans.Record = InFlight, &Record{ID: d.id}
	return answered, nil
}

// takeTurn waits for the delivery's turn. It reports false if that hasn't come, or if
// there is nothing to wait for here: another engine runs the attempt.
func (d *delivery) takeTurn(ctx context.Context) bool {
	e := d.engine
	if d.call.turn.number == 0 || d.tx != nil { // don't keep a transaction open to wait
		return false
	}
	start := e.elapsed()
	wait := max(d.call.turn.until, d.began+d.waitTime()) - start
	if wait <= 0 || !e.turns.seats.admit(d.call.Network) {
		return false
	}
	defer e.turns.seats.dismiss(d.call.Network)
	over := e.turns.join(&d.call, start)
	if over == nil {
		return false
	}
	end := time.NewTimer(wait)
	defer end.Stop()
	mine := false
	select {
	case mine = <-over:
	case <-end.C:
		mine = e.turns.leave(&d.call)
	case <-ctx.Done():
		mine = e.turns.leave(&d.call)
	case <-e.done.Done():
		mine = e.turns.leave(&d.call)
	}
	d.waited += e.elapsed() - start
	return mine
}

// free reports whether a delivery needn't wait: there is no line at its key, or it is of the
// same caller, who may learn at once how the first delivery is doing.
func (t *turns) free(call *Call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, there := t.lines[call.ID(call.turn.share)]
	return !there || l.boundTo == call.BoundTo
}

// over reports whether there is no line any more.
func (t *turns) over(call *Call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, there := t.lines[call.ID(call.turn.share)]
	return !there
}

// claim reports whether it's the delivery's turn, which then lasts until it ends.
func (t *turns) claim(call *Call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := call.ID(call.turn.share)
	l, there := t.lines[id]
	if !there {
		l = line{holder: call.turn.number, boundTo: call.BoundTo, network: call.Network}
	}
	if l.holder != call.turn.number {
		return false
	}
	l.claimed = true
	t.lines[id] = l
	return true
}

// end ends a delivery's turn.
func (t *turns) end(call *Call, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := call.ID(call.turn.share)
	if l, there := t.lines[id]; there && l.holder == call.turn.number {
		t.next(id, l, now)
	}
}

// next gives the turn to the next one in line. The caller holds t.mu.
func (t *turns) next(id ID, l line, now time.Duration) {
	if l.empty() {
		delete(t.lines, id)
		return
	}
	w, network := l.waiting.pop(l.network)
	l = line{holder: w.number, boundTo: w.boundTo, network: network, until: now + turnLasts, waiting: l.waiting}
	t.lines[id] = l
	if !l.empty() {
		t.passLater(id, l, now)
	}
	w.over <- true
}

// passLater lets a turn pass on if the delivery hasn't claimed when it's over.
func (t *turns) passLater(id ID, l line, now time.Duration) {
	time.AfterFunc(l.until-now, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if cur, there := t.lines[id]; there && cur.holder == l.holder && !cur.claimed {
			t.next(id, cur, l.until)
		}
	})
}

// join puts a delivery into the line at its key, and returns the channel that tells when
// it's over. It is nil if the delivery can't wait: there is no line, or no place in it.
func (t *turns) join(call *Call, now time.Duration) <-chan bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := call.ID(call.turn.share)
	l, there := t.lines[id]
	if !there || l.holder == call.turn.number {
		return nil
	}
	if l.waiting == nil {
		l.waiting = new(queue)
		t.lines[id] = l
	}
	first := l.empty()
	w := &waiter{call.turn.number, call.BoundTo, make(chan bool, 1)}
	if !l.waiting.push(call.Network, w) {
		return nil
	}
	if first && !l.claimed {
		t.passLater(id, l, now)
	}
	return w.over
}

// leave takes a delivery out of the line, unless its turn has come meanwhile.
func (t *turns) leave(call *Call) (mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, there := t.lines[call.ID(call.turn.share)]
	if there && l.holder != call.turn.number {
		l.waiting.remove(call.turn.number)
	}
	return there && l.holder == call.turn.number
}

func (l *line) empty() bool { return l.waiting == nil || l.waiting.count == 0 }

// push adds a waiter at the end, in the place of its network. If the line is full, the
// network with the most waiters loses its newest, provided that it has more than this one
// would have. Otherwise push reports false.
func (q *queue) push(network [16]byte, w *waiter) bool {
	at := slices.IndexFunc(q.places, func(p place) bool { return p.network == network })
	if q.count == maxInLine {
		most, own := 0, 0
		for i := range q.places {
			if len(q.places[i].waiters) > len(q.places[most].waiters) {
				most = i
			}
		}
		if at >= 0 {
			own = len(q.places[at].waiters)
		}
		p := &q.places[most]
		if len(p.waiters) <= own+1 {
			return false
		}
		last := len(p.waiters) - 1
		p.waiters[last].over <- false
		p.waiters = p.waiters[:last]
		q.count--
	}
	if at < 0 {
		at = len(q.places)
		q.places = append(q.places, place{network: network})
	}
	q.places[at].waiters = append(q.places[at].waiters, w)
	q.count++
	return true
}

// pop takes out who is next. The network that had its turn goes to the end before.
func (q *queue) pop(had [16]byte) (*waiter, [16]byte) {
	if at := slices.IndexFunc(q.places, func(p place) bool { return p.network == had }); at >= 0 {
		p := q.places[at]
		q.places = append(slices.Delete(q.places, at, at+1), p)
	}
	w, network := q.places[0].waiters[0], q.places[0].network
	q.remove(w.number)
	return w, network
}

// remove takes out a waiter, if it's there.
func (q *queue) remove(number uint64) {
	if q == nil {
		return
	}
	for i := range q.places {
		p := &q.places[i]
		at := slices.IndexFunc(p.waiters, func(w *waiter) bool { return w.number == number })
		if at < 0 {
			continue
		}
		p.waiters = slices.Delete(p.waiters, at, at+1)
		q.count--
		if len(p.waiters) == 0 {
			q.places = slices.Delete(q.places, i, i+1)
		}
		return
	}
}
