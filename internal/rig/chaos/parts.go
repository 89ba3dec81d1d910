//go:build linux

package chaos

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
)

// start starts everything but the store.
func (r *run) start() (err error) {
	r.asked = httptest.NewServer(http.HandlerFunc(r.answerNodes))
	r.upstream = r.newUpstream()
	r.up, err = faultnet.Listen(func() (net.Conn, error) {
		addr := r.serves.Load()
		if addr == nil {
			return nil, errors.New("the upstream has not started")
		}
		return net.DialTimeout("tcp", *addr, dialTime)
	})
	if err != nil {
		return err
	}
	r.t.Cleanup(r.up.Close)
	if err := errors.Join(r.upstream.start(), r.upstream.await(recoveryTimeout)); err != nil {
		return err
	}
	config := nodeConfig{upstream: "http://" + r.up.Addr(), asked: r.asked.URL, lossy: r.ground.lossy}
	for i := range r.ground.nodes {
		config.store = r.ground.url(i + 1)
		n, err := newNode(r.t.dir, cmp.Or(r.opts.Earlier, r.opts.Binary), i+1, config, r.tell)
		if err != nil {
			return err
		}
		r.t.Cleanup(n.net.Close)
		if err := errors.Join(n.start(), n.await(recoveryTimeout)); err != nil {
			return fmt.Errorf("%w\n%s", err, readFile(n.log))
		}
		r.nodes = append(r.nodes, n)
	}
	r.here = newWorker(workerConfig{Name: "here", Nodes: r.addresses()}, r.log.Add)
	for _, name := range []string{"w1", "w2"} {
		c := newCrew(r, name, r.addresses())
		if err := c.start(); err != nil {
			return err
		}
		r.crews = append(r.crews, c)
	}
	return nil
}

// newUpstream is this program as the upstream. Each start has another seed.
func (r *run) newUpstream() *process {
	return &process{name: "upstream", tell: r.tell, program: func(start int) (program, error) {
		cmd, err := child("upstream")
		return program{cmd, func(out io.Reader, ready func()) {
			scan(out, func(l line) {
				if l.Event != nil {
					r.log.Add(*l.Event)
				}
				if l.Addr != "" {
					r.serves.Store(&l.Addr)
					ready()
				}
			})
		}, func(in io.Writer) {
			_ = json.NewEncoder(in).Encode(r.upstreamConfig(start)) // or it ends
		}}, err
	}}
}

// upstreamConfig is what the upstream reads at a start, and when the earlier program is gone.
func (r *run) upstreamConfig(start int) upstreamConfig {
	return upstreamConfig{r.opts.Seed + uint64(start) - 1, r.opts.Brief, r.earlier.Load()}
}

// stop stops all processes, in an orderly way.
func (r *run) stop() {
	var all sync.WaitGroup
	for _, n := range r.nodes {
		all.Go(func() { n.stop(10 * time.Second) })
	}
	all.Wait()
	for _, c := range r.crews {
		c.stop(0)
	}
	if r.upstream != nil {
		r.upstream.stop(0)
	}
	if r.asked != nil {
		r.asked.Close()
	}
}

// faults are all faults of this run.
func (r *run) faults() []fault {
	nodes, clients := map[string]*node{}, map[string]*faultnet.Net{}
	for _, n := range r.nodes {
		nodes[n.name], clients[n.name+" and its clients"] = n, n.net
	}
	workers := map[string]*process{}
	for _, c := range r.crews {
		workers[c.process.name] = c.process
	}
	if r.ground.attach != nil {
		r.ground.attach(nodes)
	}
	all := append(nodeFaults(nodes, r.opts.Clocks), linkFaults("client", clients)...)
	all = append(all, linkFaults("upstream", map[string]*faultnet.Net{"the way to the upstream": r.up})...)
	all = append(all, processFaults("worker", workers)...)
	all = append(all, processFaults("upstream", map[string]*process{"upstream": r.upstream})...)
	return append(all, r.ground.faults...)
}

// answerNodes is the reconciler: it says what the upstream has done with a held call. If
// the upstream hasn't done anything, it still may, so the answer is unknown.
func (r *run) answerNodes(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	found := map[string]any{"outcome": "unknown"}
	if effects := r.log.Effects(q.Get("operation") + "/" + q.Get("key")); len(effects) > 0 {
		// As upstreamOutcome has put them together.
		part := strings.SplitN(effects[0].Outcome, " ", 4)
		status, err := strconv.Atoi(part[0])
		if err == nil {
			found = map[string]any{
				"outcome": "completed", "status": status, "body": base64.StdEncoding.EncodeToString([]byte(part[3])),
				"headers": map[string][]string{"Content-Type": {part[1]}, "Location": {part[2]}},
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found) // the node asks again if it was lost
}
