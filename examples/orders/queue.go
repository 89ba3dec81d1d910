package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"
)

// slots is how many deliveries a worker has at a time.
const slots = 6

// queue hands out deliveries at least once: one whose worker died before it answered
// is handed out again.
type queue struct {
	o    *options
	args []string // of a worker

	mu       sync.Mutex
	waiting  []delivery
	sum      summary
	receipts map[string]receipt // the first for each cart
	killAt   []int              // answers after which a worker is killed, in order
	answers  int
	err      error
	workers  []*worker
	change   *sync.Cond
}

// worker is a process.
type worker struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	busy map[int64]delivery
	dead bool // killed, or about to be
}

// play delivers all orders and counts.
func play(ctx context.Context, o *options) (s *summary, err error) {
	schema, err := newSchema(ctx, o.database)
	if err != nil {
		return nil, err
	}
	shop, err := openShop(ctx, o.database, schema, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, shop.remove(ctx), shop.close(ctx))
	}()
	before, err := shop.deadlocks(ctx)
	if err != nil {
		return nil, err
	}
	q := newQueue(o, schema)
	if err := q.run(ctx); err != nil {
		return nil, err
	}
	if err := shop.count(ctx, &q.sum); err != nil {
		return nil, err
	}
	after, err := shop.deadlocks(ctx)
	q.sum.Deadlocks = after - before
	return &q.sum, err
}

func newQueue(o *options, schema string) *queue {
	q := &queue{o: o, args: []string{workerCommand, o.database, schema}, receipts: map[string]receipt{}}
	q.change = sync.NewCond(&q.mu)
	q.sum.Orders = o.orders
	for i := range o.orders {
		for range o.copies { // one behind the other, so that they run at once
			d := delivery{int64(len(q.waiting)), order{fmt.Sprintf("cart-mandate-%d", i), int64(100 + i)}}
			q.waiting = append(q.waiting, d)
		}
	}
	// Each kill comes at a random moment of its own part of the run, and not so
	// late that nothing would be left to do.
	part := len(q.waiting) * 9 / 10 / max(o.kills, 1)
	for i := range o.kills {
		q.killAt = append(q.killAt, i*part+rand.N(max(part, 1)))
	}
	return q
}

// run keeps the workers busy until every delivery was answered.
func (q *queue) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { q.fail(ctx.Err()) })
	defer stop()
	var running sync.WaitGroup
	for range q.o.workers {
		running.Go(q.keepWorker)
	}
	running.Wait()
	return q.err
}

func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	for _, w := range q.workers {
		w.dead = true
		_ = w.cmd.Process.Kill() // it may have ended already
	}
	q.change.Broadcast()
}

// keepWorker runs one worker after the other until there is nothing to do.
func (q *queue) keepWorker() {
	for !q.finished() {
		if err := q.runWorker(); err != nil {
			q.fail(err)
			return
		}
	}
}

func (q *queue) finished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err != nil || q.answers == q.o.orders*q.o.copies
}

// runWorker starts a worker and serves it until it ends.
func (q *queue) runWorker() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	w := &worker{cmd: exec.Command(path, q.args...), busy: map[int64]delivery{}}
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	q.mu.Lock()
	q.workers = append(q.workers, w)
	q.mu.Unlock()
	var feeding sync.WaitGroup
	feeding.Go(func() { q.feed(w) })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			break // a line that the kill has cut off
		}
		q.answered(w, r)
	}
	killed := q.over(w)
	feeding.Wait()
	if err := w.cmd.Wait(); err != nil && !killed {
		return fmt.Errorf("a worker ended: %w", err)
	}
	return nil
}

// feed gives a worker deliveries until it ends or all are answered.
func (q *queue) feed(w *worker) {
	enc := json.NewEncoder(w.in)
	for {
		d, ok := q.next(w)
		if !ok {
			break
		}
		if enc.Encode(d) != nil {
			return // it is dead; the reader of its answers puts the delivery back
		}
	}
	_ = w.in.Close() // this ends it, if it still runs
}

func (q *queue) next(w *worker) (d delivery, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case w.dead || q.err != nil || q.answers == q.o.orders*q.o.copies:
			return d, false
		case len(q.waiting) > 0 && len(w.busy) < slots:
			d, q.waiting = q.waiting[0], q.waiting[1:]
			w.busy[d.Delivery] = d
			q.sum.Deliveries++
			return d, true
		}
		q.change.Wait()
	}
}

// answered takes an answer of a worker, and kills one if it is time. One without an
// outcome is delivered again.
func (q *queue) answered(w *worker, r reply) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := w.busy[r.Delivery]
	delete(w.busy, r.Delivery)
	defer q.change.Broadcast()
	if r.Error != "" {
		q.waiting = append(q.waiting, d)
		return
	}
	q.answers++
	if r.Decision == "execute" {
		q.sum.Executed++
	} else {
		q.sum.Duplicates++
	}
	if first, ok := q.receipts[d.Order.Cart]; !ok {
		q.receipts[d.Order.Cart] = r.Receipt
	} else if first != r.Receipt {
		q.sum.Differing++
	}
	if len(q.killAt) > 0 && q.answers > q.killAt[0] && q.killOne() {
		q.killAt = q.killAt[1:]
	}
}

// killOne kills a worker that has something to do. The caller holds q.mu.
func (q *queue) killOne() bool {
	for _, i := range rand.Perm(len(q.workers)) {
		w := q.workers[i]
		if w.dead || len(w.busy) == 0 || w.cmd.Process.Kill() != nil {
			continue
		}
		w.dead = true
		q.sum.Kills++
		return true
	}
	return false
}

// over removes a worker that has ended from the list, and puts back the deliveries that
// it hadn't answered. It reports whether it was killed.
func (q *queue) over(w *worker) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.workers {
		if q.workers[i] == w {
			q.workers = append(q.workers[:i], q.workers[i+1:]...)
			break
		}
	}
	for _, d := range w.busy {
		q.waiting = append([]delivery{d}, q.waiting...)
	}
	clear(w.busy)
	killed := w.dead
	w.dead = true
	q.change.Broadcast()
	return killed
}
