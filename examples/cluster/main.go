// Command cluster runs several nodes of the service on one store, sends every order
// several times through all of them, and kills the nodes in turn. The upstream
// counts what it was asked to do.
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
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	store  string
	nodes  int
	orders int
	copies int
	kills  int
	json   bool
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
	// Effects counts what the upstream did, Repeated the orders for which it did
	// that more than once.
	Effects  int `json:"effects"`
	Repeated int `json:"repeated"`
	// Answered are the orders to which a caller got the upstream's answer, and
	// Differing those of which two callers got different ones.
	Answered  int `json:"answered"`
	Differing int `json:"differing"`
}

func (s *summary) ok() bool {
	return s.Repeated == 0 && s.Effects == s.Orders && s.Answered == s.Orders && s.Differing == 0
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var o options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.StringVar(&o.store, "store", "", "URL of the store: postgres://…, redis://… or redis-cluster://…")
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes")
	flags.IntVar(&o.orders, "orders", 300, "how many orders")
	flags.IntVar(&o.copies, "copies", 5, "how often each order is sent")
	flags.IntVar(&o.kills, "kills", 6, "how often a node is killed")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if o.store == "" || o.nodes < 1 || o.orders < 1 || o.copies < 1 || o.kills < 0 {
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
	fmt.Fprintf(out, "%d nodes on %s, killed %d times\n", s.Nodes, s.Store, s.Kills)
	fmt.Fprintf(out, "%d orders, sent %d times\n", s.Orders, s.Deliveries)
	fmt.Fprintf(out, "%d effects, %d orders with more than one\n", s.Effects, s.Repeated)
	fmt.Fprintf(out, "%d orders answered, %d in two ways\n", s.Answered, s.Differing)
	return s.ok(), nil
}

// kind is the store's URL without what is private in it.
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
