// Command cluster runs several nodes of the service on one store, sends every order
// several times through all of them, and kills the nodes in turn. The upstream
// counts the orders that it gets.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	store                 string
	nodes, orders, copies int
	kills                 int
	// restarts counts those in order.
	restarts int
	work     time.Duration
	json     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == nodeCommand {
		if err := runNode(ctx, os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// summary is what the example prints.
type summary struct {
	Store      string `json:"store"`
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
	// Answered are the orders to which a caller got the upstream's answer, and
	// Differing those of which two callers got different ones.
	Answered  int `json:"answered"`
	Differing int `json:"differing"`
	// Held counts the questions about orders that were held because their node died in
	// the middle of them.
	Held int `json:"held"`
	// Again says why deliveries were repeated: by status, or "connection" if there was
	// no answer.
	Again map[string]int `json:"again"`
}

// failures counts the answers that were neither the upstream's nor a reason to retry.
// 409 means that the order is being executed, 503 that the node is stopping or can't
// reach its store, and without an answer the same key is sent again.
func (s *summary) failures() (n int) {
	for why, times := range s.Again {
		if !slices.Contains([]string{"connection", "409", "503"}, why) {
			n += times
		}
	}
	return n
}

func (s *summary) ok() bool {
	once := s.Repeated == 0 && s.Effects == s.Orders && s.Answered == s.Orders && s.Differing == 0
	// A node that stops properly leaves nothing open.
	return once && (s.Kills > 0 || s.Held == 0 && s.failures() == 0)
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var o options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.StringVar(&o.store, "store", "", "URL of the store: postgres://…, redis://… or redis-cluster://…")
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes")
	flags.IntVar(&o.orders, "orders", 300, "how many orders; more, while nodes are restarted")
	flags.IntVar(&o.copies, "copies", 5, "how often each order is sent")
	flags.IntVar(&o.kills, "kills", 6, "how often a node is killed")
	flags.IntVar(&o.restarts, "restarts", 0, "how often a node is restarted in an orderly way")
	flags.DurationVar(&o.work, "work", 0, "how long the upstream works on an order")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if o.store == "" || o.nodes < 1 || o.orders < 1 || o.copies < 1 || o.kills < 0 || o.restarts < 0 {
		return false, errors.New("cluster: --store is required, and the numbers are above zero")
	}
	s, err := play(ctx, &o)
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
	fmt.Fprintf(out, "%d questions about orders that were held; deliveries repeated after: %v\n", s.Held, s.Again)
	return s.ok(), nil
}

// kind is the store's URL without its private parts.
func kind(url string) string {
	scheme, _, _ := strings.Cut(url, ":")
	return scheme
}

// firstLine reads a line that a child prints when it is ready.
func firstLine(r io.Reader, v any) error {
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the node did not start: %w", err)
	}
	return json.Unmarshal(line, v)
}
