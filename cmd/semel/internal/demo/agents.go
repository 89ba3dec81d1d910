package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// AgentsReport has the results of the demo of agents. Payments are counted in the ledger of the
// server of tools.
type AgentsReport struct {
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	// Straight, Fields and Echo are orders with answers that got lost: straight at the server, and
	// through the gateway for a tool with declared fields and for one without.
	Straight Lost `json:"straight"`
	Fields   Lost `json:"fields"`
	Echo     Lost `json:"echo"`
	// Equal is how many payments there are after two equal calls that were both answered.
	Equal int `json:"equal"`
	// Joined is how many payments there are after a call that came twice at once.
	Joined int `json:"joined"`
	// Unknown has what a model read after the gateway was killed in the middle of a refund.
	Unknown Unknown `json:"unknown"`
	// Faults says in words what went wrong; empty when OK.
	Faults []string `json:"faults"`
}

// Lost counts orders with a lost first answer, that the agent asked for again.
type Lost struct {
	Orders   int `json:"orders"`
	Sent     int `json:"sent"`
	Payments int `json:"payments"`
	Replayed int `json:"replayed"`
}

// Unknown is a call with an outcome that nobody knows, and how the agent went on.
type Unknown struct {
	KilledPID int    `json:"killed_pid"`
	Outcome   string `json:"outcome"`
	Action    string `json:"action"`
	Words     string `json:"words"`
	Verified  string `json:"verified"` // what the tool said that only reads
	Payments  int    `json:"payments"`
}

// agents is one run of the demo of agents.
type agents struct {
	opts   Options
	screen *Screen
	report AgentsReport
	shop   *shop
	http   http.Client
	ids    int
	dir    string
	server string // the URL of the server
	guard  *stage.Process
}

// RunAgents runs the demo of agents. An error means that it couldn't be completed. Processes and
// files are gone when it returns.
func RunAgents(ctx context.Context, opts Options) (report AgentsReport, err error) {
	a := &agents{opts: opts, screen: opts.Screen, shop: &shop{ledger: map[string]int{}}, http: http.Client{Transport: &http.Transport{}, Timeout: retryTimeout}}
	start := time.Now()
	server, stop, err := stage.Toy(a.shop)
	if err != nil {
		return a.report, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	a.server = server + "/mcp"
	if a.dir, err = os.MkdirTemp("", "semel-demo-"); err != nil {
		return a.report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(a.dir)) }()
	if err := a.startGateway(ctx); err != nil {
		return a.report, err
	}
	defer func() {
		a.http.CloseIdleConnections()
		_ = a.guard.Stop() // its end proves nothing
	}()
	a.screen.agentsOpening(a)
	for _, chapter := range []func(context.Context) error{a.lost, a.equal, a.join, a.crash} {
		if err := chapter(ctx); err != nil {
			return a.report, err
		}
	}
	a.report.Seconds = time.Since(start).Seconds()
	a.report.judge()
	a.screen.agentsClosing(&a.report)
	return a.report, nil
}

// gatewayArgs are what you would type in front of the server. The lease is short, so that a killed
// process is noticed soon.
func (a *agents) gatewayArgs() []string {
	if a.opts.Unguarded {
		return []string{"mcp", a.server, "--read-only", refundTool + "," + voucherTool + "," + refundsTool}
	}
	return []string{"mcp", a.server, "--key", refundTool + "=/order_id", "--read-only", refundsTool}
}

// startGateway starts 'semel mcp' in the demo's directory, for the first time or again.
func (a *agents) startGateway(ctx context.Context) (err error) {
	a.guard, err = startChild(ctx, a.dir, append(a.gatewayArgs(), "--lease", "2s", "--listen", "127.0.0.1:0", "--json")...)
	return err
}

// breaking asks on a connection that breaks when the server has done the work.
func (a *agents) breaking(ctx context.Context, base, tool, order string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.shop.onPayment(cancel)
	if _, err := a.ask(ctx, base, tool, order); err == nil {
		return errors.New("an answer arrived on a connection that was broken")
	}
	return nil
}

// lost loses the first answer for each order, and asks again.
func (a *agents) lost(ctx context.Context) error {
	for i, way := range []struct {
		title, base, tool string
		lost              *Lost
	}{
		{"Answers get lost, straight at the server", a.server, refundTool, &a.report.Straight},
		{"The same through the gateway: the tool declares order_id", a.guard.URL, refundTool, &a.report.Fields},
		{"A tool that declares nothing, and a client that sends no key", a.guard.URL, voucherTool, &a.report.Echo},
	} {
		a.screen.chapter("%s", way.title)
		r := way.lost
		for r.Orders < orders {
			r.Orders++
			order := fmt.Sprintf("lost-%d-%d", i, r.Orders)
			if err := a.breaking(ctx, way.base, way.tool, order); err != nil {
				return err
			}
			t, err := a.ask(ctx, way.base, way.tool, order)
			if err != nil {
				return err
			}
			if r.Sent += 2; t.replayed {
				r.Replayed++
			}
			r.Payments += a.shop.paid(way.tool, order)
		}
		a.screen.line("%d orders, each asked for twice because the first answer got lost", r.Orders)
		if way.base == a.server {
			a.screen.figure(false, "%d payments in the ledger", r.Payments)
			continue
		}
		a.screen.verdict(r.Payments == r.Orders, "%d payments in the ledger, %d answers replayed", r.Payments, r.Replayed)
	}
	return nil
}

// equal asks twice for the same on purpose: each was answered, so they are two.
func (a *agents) equal(ctx context.Context) error {
	a.screen.chapter("Two equal calls that are meant")
	for range 2 {
		if _, err := a.ask(ctx, a.guard.URL, voucherTool, "gift"); err != nil {
			return err
		}
	}
	a.report.Equal = a.shop.paid(voucherTool, "gift")
	a.screen.line("the same voucher, asked for again after its answer had arrived")
	a.screen.verdict(a.report.Equal == 2, "%d vouchers", a.report.Equal)
	return nil
}

// join asks twice at once.
func (a *agents) join(ctx context.Context) error {
	a.screen.chapter("A refund that is asked for twice at once")
	var first, second told
	var errs [2]error
	var both sync.WaitGroup
	other := &agents{shop: a.shop, http: http.Client{Transport: &http.Transport{}, Timeout: retryTimeout}, ids: 1000}
	defer other.http.CloseIdleConnections()
	both.Go(func() { first, errs[0] = a.ask(ctx, a.guard.URL, refundTool, "twice") })
	both.Go(func() { second, errs[1] = other.ask(ctx, a.guard.URL, refundTool, "twice") })
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	a.report.Joined = a.shop.paid(refundTool, "twice")
	a.screen.line("both get %q, each under its own id", first.text)
	a.screen.verdict(a.report.Joined == 1 && first.text == second.text, "%s", plural(a.report.Joined, "refund"))
	return nil
}

// crash kills the gateway after the server has paid and before it has answered, starts it again on
// the same store, and asks again.
func (a *agents) crash(ctx context.Context) error {
	a.screen.chapter("kill -9 of the gateway in the middle of a refund")
	r := &a.report.Unknown
	paid, lost := make(chan struct{}), make(chan error, 1)
	a.shop.onPayment(func() { close(paid) })
	go func() {
		_, err := a.ask(ctx, a.guard.URL, refundTool, slowOrder)
		lost <- err
	}()
	select {
	case <-paid:
	case err := <-lost:
		return fmt.Errorf("the refund was not under way: %w", err)
	}
	r.KilledPID = a.guard.PID()
	a.guard.Kill()
	if err := <-lost; err == nil {
		return errors.New("the gateway answered before it was killed")
	}
	if err := a.startGateway(ctx); err != nil {
		return err
	}
	a.screen.line("process %d was killed before it had the answer, and process %d took over its store", r.KilledPID, a.guard.PID())
	t, err := a.ask(ctx, a.guard.URL, refundTool, slowOrder)
	if err != nil {
		return err
	}
	r.Outcome, r.Action, r.Words = t.outcome, t.action, t.text
	a.screen.line("the agent asks again, and its model reads:")
	a.screen.quote(t.text)
	seen, err := a.ask(ctx, a.guard.URL, refundsTool, slowOrder)
	if err != nil {
		return err
	}
	r.Verified, r.Payments = seen.text, a.shop.paid(refundTool, slowOrder)
	a.screen.line("it asks the tool %s, which says: %q", refundsTool, r.Verified)
	a.screen.verdict(r.Payments == 1, "%s", plural(r.Payments, "refund"))
	return nil
}

// judge compares the results with what the gateway promises.
func (r *AgentsReport) judge() {
	f := faults{}
	f.want("payments straight at the server, one for each try", r.Straight.Payments, r.Straight.Sent)
	f.want("payments through the gateway, by declared fields", r.Fields.Payments, orders)
	f.want("payments through the gateway, without a key", r.Echo.Payments, orders)
	f.want("answers replayed, by declared fields", r.Fields.Replayed, orders)
	f.want("answers replayed, without a key", r.Echo.Replayed, orders)
	f.want("vouchers for two equal calls", r.Equal, 2)
	f.want("refunds for a call that came twice at once", r.Joined, 1)
	f.want("refunds after the gateway was killed", r.Unknown.Payments, 1)
	f.must("a model was not told that the outcome is unknown", r.Unknown.Outcome == "unknown" && r.Unknown.Action == "verify")
	r.Faults, r.OK = f, len(f) == 0
}

func (s *Screen) agentsOpening(a *agents) {
	s.print(s.paint(bold, "A server of tools that pays as often as it is asked to, and Semel's gateway for MCP in front of it") + "\n")
	s.line("server   %s", a.server)
	s.line("gateway  %s", a.guard.URL)
	s.line("         semel %s", strings.Join(a.gatewayArgs(), " "))
	s.line("the agent's client sends no key; payments are counted in the server's own ledger")
}

func (s *Screen) agentsClosing(r *AgentsReport) {
	s.print("\n")
	if r.OK {
		s.print(s.paint(bold, fmt.Sprintf("%d orders with lost answers: %d payments without a gateway, %d behind Semel.", r.Straight.Orders, r.Straight.Payments, r.Fields.Payments)) + "\n")
	} else {
		s.faults("The demo", r.Faults)
	}
	s.print(s.paint(dim, fmt.Sprintf("%.1f s; docs/mcp.md says how to put it in front of a server of yours", r.Seconds)) + "\n")
}
