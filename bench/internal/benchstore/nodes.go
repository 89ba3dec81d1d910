package benchstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// nodes are processes that share a load.
type nodes struct {
	list []*remote
}

// remote is one of them.
type remote struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *json.Encoder
	reports *json.Decoder
	memory  Memory // as of its last report
}

// startNodes starts processes and gives each its assignment. They end when their standard
// input does, so they can't outlive this process.
func startNodes(ctx context.Context, n int, command func() *exec.Cmd, a assignment) (_ *nodes, err error) {
	ns := &nodes{}
	defer func() {
		if err != nil {
			err = errors.Join(err, ns.close())
		}
	}()
	for range n {
		r := &remote{cmd: command()}
		in, err := r.cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := r.cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := r.cmd.Start(); err != nil {
			return nil, err
		}
		r.stdin, r.orders, r.reports = in, json.NewEncoder(in), json.NewDecoder(out)
		ns.list = append(ns.list, r)
	}
	for _, r := range ns.list {
		if err := r.orders.Encode(a); err != nil {
			return nil, fmt.Errorf("start a node: %w", err)
		}
	}
	for i, r := range ns.list {
		var ready turnReport
		if err := r.reports.Decode(&ready); err != nil {
			return nil, fmt.Errorf("node %d did not start: %w", i+1, err)
		}
		if ready.Error != "" {
			return nil, fmt.Errorf("node %d: %s", i+1, ready.Error)
		}
	}
	return ns, ctx.Err()
}

// turner makes all nodes run a load at the same time.
func (ns *nodes) turner(l Load) turner {
	return func(ctx context.Context, t *tally, d time.Duration) float64 {
		// Without further orders they end their turn.
		defer context.AfterFunc(ctx, func() {
			for _, r := range ns.list {
				_ = r.stdin.Close()
			}
		})()
		var mu sync.Mutex
		var wg sync.WaitGroup
		var elapsed time.Duration
		var done uint64
		for i, r := range ns.list {
			wg.Go(func() {
				own, err := r.turn(order{l, d})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					own = &tally{errors: 1, first: fmt.Errorf("node %d: %w", i+1, err)}
				}
				elapsed = max(elapsed, own.elapsed)
				done += own.latency.Total
				t.add(own)
			})
		}
		wg.Wait()
		t.elapsed += elapsed
		if elapsed == 0 {
			return 0
		}
		return float64(done) / elapsed.Seconds()
	}
}

func (r *remote) turn(o order) (*tally, error) {
	if err := r.orders.Encode(o); err != nil {
		return nil, err
	}
	var report turnReport
	if err := r.reports.Decode(&report); err != nil {
		return nil, fmt.Errorf("the node is gone: %w", err)
	}
	r.memory = report.Memory
	return report.tally()
}

// memory is the sum over all nodes.
func (ns *nodes) memory() (sum Memory) {
	for _, r := range ns.list {
		sum.Resident += r.memory.Resident
		sum.Peak += r.memory.Peak
	}
	return sum
}

// nodePatience is how long a node may take to end.
const nodePatience = 15 * time.Second

// close ends the nodes.
func (ns *nodes) close() (err error) {
	for _, r := range ns.list {
		_ = r.stdin.Close() // it may be gone
	}
	for i, r := range ns.list {
		timer := time.AfterFunc(nodePatience, func() { _ = r.cmd.Process.Kill() })
		if werr := r.cmd.Wait(); werr != nil {
			err = errors.Join(err, fmt.Errorf("node %d: %w", i+1, werr))
		}
		timer.Stop()
	}
	return err
}
