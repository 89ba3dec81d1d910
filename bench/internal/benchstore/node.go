package benchstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/semelhq/semel/bench/internal/histogram"
)

// assignment is the first message to a node: what it takes part in.
type assignment struct {
	URL         string `json:"url"`
	Space       string `json:"space"`
	Callers     int    `json:"callers"`
	ResultBytes int    `json:"result_bytes"`
	// Records is how many records there are for replays.
	Records int  `json:"records"`
	Compare bool `json:"compare"`
}

// order makes a node take a turn.
type order struct {
	// Load is one of Loads, or bareLoad.
	Load     Load          `json:"load"`
	Duration time.Duration `json:"duration"`
}

// bareLoad is the load of the bare loop.
const bareLoad Load = "bare"

// turnReport has a node's measurements of a turn. It also answers an assignment.
type turnReport struct {
	// Counts has the non-empty buckets of the histogram.
	Counts  map[int]uint64 `json:"counts,omitempty"`
	Max     time.Duration  `json:"max,omitempty"`
	Elapsed time.Duration  `json:"elapsed,omitempty"`
	Mallocs uint64         `json:"mallocs,omitempty"`
	Size    uint64         `json:"size,omitempty"`
	Errors  uint64         `json:"errors,omitempty"`
	// Error is the first of Errors, or the reason why the node can't go on.
	Error  string `json:"error,omitempty"`
	Memory Memory `json:"memory"`
}

// Node is one of several processes that share a load: it reads orders from in and reports
// to out, until in ends.
func Node(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders, reports := json.NewDecoder(in), json.NewEncoder(out)
	var a assignment
	if err := orders.Decode(&a); err != nil {
		return fmt.Errorf("read the assignment: %w", err)
	}
	n, err := join(ctx, a)
	if err != nil {
		return errors.Join(err, reports.Encode(turnReport{Error: err.Error()}))
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := reports.Encode(turnReport{}); err != nil {
		return err
	}
	// A turn ends early when the process that gives the orders is gone.
	next := make(chan order)
	go func() {
		defer cancel()
		defer close(next)
		for {
			var o order
			if orders.Decode(&o) != nil {
				return
			}
			next <- o
		}
	}()
	for o := range next {
		if err := reports.Encode(n.turn(ctx, o)); err != nil {
			cancel()
			for range next { // until the reader has noticed
			}
			return err
		}
	}
	return nil
}

// node has the store and the bare loop for the orders.
type node struct {
	target  *target
	loop    loop
	callers []*caller
	closers []func() error
}

func join(ctx context.Context, a assignment) (n *node, err error) {
	n = &node{callers: newCallers(a.Callers)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	p, err := newPlace(&Options{URL: a.URL}, a.Space)
	if err != nil {
		return n, err
	}
	store, err := p.open(ctx, "ours")
	if err != nil {
		return n, err
	}
	n.closers = append(n.closers, store.Close)
	if n.target, err = newTarget(store, a.ResultBytes); err != nil {
		return n, err
	}
	n.target.records = a.Records
	if !a.Compare {
		return n, nil
	}
	s, err := n.target.takeSample(ctx)
	if err != nil {
		return n, err
	}
	if n.loop, err = p.bare(ctx, n.target, s); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.loop.close)
	return n, nil
}

// close leaves the data, which the process that gives the orders removes.
func (n *node) close() (err error) {
	for _, f := range n.closers {
		err = errors.Join(err, f())
	}
	return err
}

func (n *node) turn(ctx context.Context, o order) turnReport {
	op := n.target.operation(o.Load)
	if o.Load == bareLoad {
		if n.loop == nil {
			return turnReport{Error: "nothing was to be compared"}
		}
		op = n.loop.execute
	}
	var t tally
	t.turn(ctx, n.callers, o.Duration, op)
	r := turnReport{
		Counts: map[int]uint64{}, Max: t.latency.Max, Elapsed: t.elapsed, Mallocs: t.mallocs, Size: t.size, Errors: t.errors, Memory: readMemory(),
	}
	for i, c := range t.latency.Counts {
		if c > 0 {
			r.Counts[i] = c
		}
	}
	if t.first != nil {
		r.Error = t.first.Error()
	}
	return r
}

// tally turns the report into the tally of one turn.
func (r *turnReport) tally() (*tally, error) {
	t := &tally{elapsed: r.Elapsed, mallocs: r.Mallocs, size: r.Size, errors: r.Errors}
	for i, c := range r.Counts {
		if i < 0 || i >= histogram.Buckets {
			return nil, fmt.Errorf("a node reports a bucket %d", i)
		}
		t.latency.Counts[i] = c
		t.latency.Total += c
	}
	t.latency.Max = r.Max
	if r.Error != "" {
		t.first = errors.New(r.Error)
	}
	if t.first != nil && t.errors == 0 {
		return nil, t.first
	}
	return t, nil
}
