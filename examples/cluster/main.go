// Command cluster runs several nodes of the service on one store, sends every order
// several times through all of them, and kills the nodes in turn. The upstream
// counts the orders that it gets.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/service"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := true, error(nil)
	if len(os.Args) == 3 && os.Args[1] == nodeCommand {
		err = node(ctx, os.Args[2])
	} else {
		ok, err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// nodeCommand is how the program runs itself as a node.
const nodeCommand = "node"

// node is a process of the service.
func node(ctx context.Context, configuration string) error {
	s, err := service.New(ctx, service.Options{YAML: []byte(configuration), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return stage.Announce(ctx, os.Stdin, os.Stdout, stage.Address{URL: "http://" + s.DataAddr().String()}, s.Run)
}

// options are the flags.
type options struct {
	store                 string
	nodes, orders, copies int
	kills, restarts       int
	work                  time.Duration
	json, demo            bool
}

// configuration is the configuration of a node, as JSON, which is YAML with all quotes. What a
// killed node leaves is held when its lease is over. Without kills no lease may end, however
// slow the machine is.
func (o *options) configuration(upstream string) string {
	lease := "1m"
	if o.kills > 0 {
		lease = "1s"
	}
	text, err := json.Marshal(map[string]any{
		"listen": map[string]any{"address": "127.0.0.1:0"},
		"admin":  map[string]any{"address": "127.0.0.1:0"},
		"store":  map[string]any{"url": o.store, "migrate": true, "accept_loss": true},
		"operations": []any{map[string]any{
			"name": "orders.create", "lease": lease, "reconcile_url": upstream + "/reconcile", "reconcile_every": "1s",
		}},
		"routes": []any{map[string]any{"match": "POST /orders", "upstream": upstream, "operation": "orders.create"}},
		"purge":  map[string]any{"interval": "1s"},
	})
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	return string(text)
}

// summary is what the example prints.
type summary struct {
	Store      string `json:"store"` // its scheme
	Nodes      int    `json:"nodes"`
	Orders     int    `json:"orders"`
	Deliveries int64  `json:"deliveries"`
	Kills      int    `json:"kills"`
	// Restarts counts the nodes that were stopped by SIGTERM and started again,
	// and Meanwhile the answers that callers got during those.
	Restarts  int   `json:"restarts"`
	Meanwhile int64 `json:"meanwhile"`
	// Effects counts the upstream's effects, Repeated the orders that had more than one.
	Effects  int `json:"effects"`
	Repeated int `json:"repeated"`
	// Answered counts the orders with at least one caller who got the upstream's answer, and
	// Differing the orders with two different answers.
	Answered  int `json:"answered"`
	Differing int `json:"differing"`
	// Held counts the questions about orders that were held because their node died in
	// the middle of them.
	Held int64 `json:"held"`
	// Again counts deliveries repeated after no answer or a 503: the node was gone or stopping.
	// Failures counts those repeated for another reason, except 409: the order is running.
	Again    int64 `json:"again"`
	Failures int64 `json:"failures"`
}

func (s *summary) ok() bool {
	once := s.Repeated == 0 && s.Effects == s.Orders && s.Answered == s.Orders && s.Differing == 0
	// A node that stops properly leaves nothing open.
	return once && (s.Kills > 0 || s.Held == 0 && s.Failures == 0)
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var o options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.StringVar(&o.store, "store", "", "URL of the store: postgres://…, redis://… or redis-cluster://…")
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes")
	flags.IntVar(&o.orders, "orders", 300, "how many orders")
	flags.IntVar(&o.copies, "copies", 5, "how often each order is sent")
	flags.IntVar(&o.kills, "kills", 6, "how often a node is killed")
	flags.IntVar(&o.restarts, "restarts", 0, "how often a node is restarted in an orderly way")
	flags.DurationVar(&o.work, "work", 0, "how long the upstream works on an order")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	flags.BoolVar(&o.demo, "demo", false, "only start the nodes, and print requests to send")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if o.store == "" || o.nodes < 1 || o.orders < 1 || o.copies < 1 || o.kills < 0 || o.restarts < 0 {
		return false, errors.New("cluster: --store is required, and the numbers are above zero")
	}
	if o.demo {
		return true, o.show(ctx, out)
	}
	s, err := o.play(ctx)
	if err != nil {
		return false, err
	}
	if o.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return s.ok(), enc.Encode(s)
	}
	fmt.Fprintf(out, "%d nodes on %s, killed %d times, restarted in order %d times\n", s.Nodes, s.Store, s.Kills, s.Restarts)
	fmt.Fprintf(out, "%d orders, sent %d times\n", s.Orders, s.Deliveries)
	fmt.Fprintf(out, "%d effects, %d orders with more than one\n", s.Effects, s.Repeated)
	fmt.Fprintf(out, "%d orders answered, %d in two ways\n", s.Answered, s.Differing)
	fmt.Fprintf(out, "%d questions about orders that were held; %d deliveries repeated because a node was gone, %d after a failure\n", s.Held, s.Again, s.Failures)
	return s.ok(), nil
}

// start starts the upstream and the nodes. Stop ends them, after an error too.
func (o *options) start(ctx context.Context, book *stage.Upstream) (nodes []*stage.Node, stop func() error, err error) {
	upstream := httptest.NewServer(book)
	stop = func() (err error) {
		for _, n := range nodes {
			err = errors.Join(err, n.Stop())
		}
		upstream.Close()
		return err
	}
	for range o.nodes {
		n, err := stage.StartNode(ctx, func() (*exec.Cmd, error) { return stage.Self(nodeCommand, o.configuration(upstream.URL)) })
		if err != nil {
			return nil, stop, err
		}
		nodes = append(nodes, n)
	}
	return nodes, stop, nil
}

// show prints an order to send to one node after the other, and in the end what the upstream did.
func (o *options) show(ctx context.Context, out io.Writer) error {
	book := &stage.Upstream{Work: o.work}
	nodes, stop, err := o.start(ctx, book)
	if err == nil {
		order := fmt.Sprintf("order-%d", time.Now().UnixNano())
		var requests []stage.Request
		for i := range 3 {
			requests = append(requests, stage.Request{URL: nodes[i%len(nodes)].URL() + "/orders", Header: http.Header{"Idempotency-Key": {order}, "Content-Type": {"text/plain"}}, Body: order})
		}
		stage.Show(out, "Send an order to one node after the other, and then stop them by Control-C:", requests...)
		<-ctx.Done()
		fmt.Fprintf(out, "upstream: orders %d, effects %d\n", book.Len(), book.Sum())
	}
	return errors.Join(err, stop())
}

// play is the whole run.
func (o *options) play(ctx context.Context) (_ *summary, err error) {
	book := &stage.Upstream{Work: o.work}
	nodes, stop, err := o.start(ctx, book)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	store, _, _ := strings.Cut(o.store, ":")
	s := &summary{Store: store, Nodes: o.nodes, Orders: o.orders, Kills: o.kills, Restarts: o.restarts}
	c := &callers{
		nodes: nodes, name: fmt.Sprintf("order-%d", time.Now().UnixNano()),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &safehttp.Transport{Base: &http.Transport{MaxIdleConnsPerHost: 32}}},
	}
	disturbed := 0
	load := stage.Load{
		Senders: 24, Pause: 20 * time.Millisecond, Try: c.send, Times: o.kills + o.restarts,
		Disturb: func(ctx context.Context) error { // one node after the other
			n := nodes[disturbed%len(nodes)]
			if disturbed++; disturbed <= o.kills {
				return n.Crash(ctx)
			}
			before := c.got.Sum()
			defer func() { s.Meanwhile += int64(c.got.Sum() - before) }()
			return n.Restart(ctx)
		},
	}
	for order := range o.orders {
		for range o.copies { // close together, and now and then at the same time
			load.Calls = append(load.Calls, order)
		}
	}
	if err := load.Run(ctx); err != nil {
		return nil, err
	}
	s.Deliveries, s.Again, s.Failures = c.deliveries.Load(), c.again.Load(), c.failures.Load()
	s.Effects, s.Repeated, s.Held = book.Sum(), len(book.Repeated()), book.Asked.Load()
	s.Answered, s.Differing = c.got.Len(), len(c.got.Differing())
	return s, nil
}

// callers send orders to any of the nodes.
type callers struct {
	nodes  []*stage.Node
	client *http.Client
	name   string       // new for this run
	got    stage.Counts // the answers, by order

	deliveries, again, failures atomic.Int64
}

// send is one delivery.
func (c *callers) send(ctx context.Context, n int) (answered bool, err error) {
	order := fmt.Sprintf("%s-%d", c.name, n)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.nodes[rand.IntN(len(c.nodes))].URL()+"/orders", strings.NewReader(order))
	if err != nil {
		return false, err
	}
	r.Header.Set("Idempotency-Key", order)
	c.deliveries.Add(1)
	resp, err := c.client.Do(r)
	if err != nil {
		c.again.Add(1)
		return false, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil, resp.StatusCode == http.StatusServiceUnavailable:
		c.again.Add(1)
	case resp.StatusCode == http.StatusCreated:
		c.got.Add(order, string(body))
		return true, nil
	case resp.StatusCode != http.StatusConflict:
		c.failures.Add(1)
	}
	return false, nil
}
