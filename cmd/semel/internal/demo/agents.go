package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/store/memstore"
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
	// Unknown has what a model read when the server broke off.
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
	Outcome  string `json:"outcome"`
	Action   string `json:"action"`
	Words    string `json:"words"`
	Verified string `json:"verified"` // what the tool said that only reads
	Payments int    `json:"payments"` // after the call came again
}

// agents is one run of the demo of agents.
type agents struct {
	screen *Screen
	report AgentsReport
	shop   *shop
	http   http.Client
	ids    int
	server string // its URL
	guard  string // the gateway's
}

// RunAgents runs the demo of agents, in this process. An error means that it couldn't be completed.
func RunAgents(ctx context.Context, opts Options) (AgentsReport, error) {
	a := &agents{screen: opts.Screen, shop: &shop{ledger: map[string]int{}}, http: http.Client{Transport: &http.Transport{}, Timeout: retryTimeout}}
	start := time.Now()
	server, stop, err := stage.Toy(a.shop)
	if err != nil {
		return a.report, err
	}
	a.server = server + "/mcp"
	guard, end, err := openGateway(ctx, a.server, opts.Unguarded)
	if err != nil {
		return a.report, errors.Join(err, stop())
	}
	a.guard = guard
	a.screen.agentsOpening(a)
	for _, chapter := range []func(context.Context) error{a.lost, a.equal, a.join, a.unknown} {
		if err = chapter(ctx); err != nil {
			break
		}
	}
	a.http.CloseIdleConnections()
	if err = errors.Join(err, end(), stop()); err != nil {
		return a.report, err
	}
	a.report.Seconds = time.Since(start).Seconds()
	a.report.judge()
	a.screen.agentsClosing(&a.report)
	return a.report, nil
}

// openGateway serves a gateway in front of a server until end is called. Unguarded, it lets every
// call pass.
func openGateway(ctx context.Context, upstream string, unguarded bool) (at string, end func() error, err error) {
	there, err := url.Parse(upstream)
	if err != nil {
		return "", nil, err
	}
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		return "", nil, err
	}
	callers, err := semelhttp.New(engine, nil)
	if err != nil {
		return "", nil, err
	}
	gateway, err := mcp.NewGateway(callers, mcp.GatewayOptions{
		Upstream: there, Path: "/mcp", Operation: semel.Operation{Name: "tools", MaxWait: time.Minute},
		Tools: map[string]mcp.Tool{
			refundTool:  {Fields: []string{"/order_id"}, VerifyWith: []string{refundsTool}, ReadOnly: unguarded},
			voucherTool: {ReadOnly: unguarded},
			refundsTool: {ReadOnly: true},
		},
	})
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: gateway}
	strict := semelproxy.Strict(s, l) // so that the gateway sees whether its answers arrive
	go func() { _ = s.Serve(strict) }()
	return "http://" + l.Addr().String() + "/mcp", func() error {
		err := s.Close()
		gateway.Close()
		return errors.Join(err, engine.Close(context.WithoutCancel(ctx)))
	}, nil
}

// breaking asks on a connection that breaks when the server has done the work.
func (a *agents) breaking(ctx context.Context, base, tool, order string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.shop.mu.Lock()
	a.shop.breaks = cancel
	a.shop.mu.Unlock()
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
		{"The same through the gateway: the tool declares order_id", a.guard, refundTool, &a.report.Fields},
		{"A tool that declares nothing, and a client that sends no key", a.guard, voucherTool, &a.report.Echo},
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
		if _, err := a.ask(ctx, a.guard, voucherTool, "gift"); err != nil {
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
	both.Go(func() { first, errs[0] = a.ask(ctx, a.guard, refundTool, "twice") })
	both.Go(func() { second, errs[1] = other.ask(ctx, a.guard, refundTool, "twice") })
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	a.report.Joined = a.shop.paid(refundTool, "twice")
	a.screen.line("both get %q, each under its own id", first.text)
	a.screen.verdict(a.report.Joined == 1 && first.text == second.text, "%s", plural(a.report.Joined, "refund"))
	return nil
}

// unknown has the server break off after it has paid.
func (a *agents) unknown(ctx context.Context) error {
	a.screen.chapter("The server breaks off, and nobody knows what it did")
	r := &a.report.Unknown
	t, err := a.ask(ctx, a.guard, refundTool, diesOrder)
	if err != nil {
		t.text = err.Error() // as it is without a gateway
	}
	r.Outcome, r.Action, r.Words = t.outcome, t.action, t.text
	a.screen.line("the model reads:")
	a.screen.quote(t.text)
	seen, err := a.ask(ctx, a.guard, refundsTool, diesOrder)
	if err != nil {
		return err
	}
	r.Verified = seen.text
	_, _ = a.ask(ctx, a.guard, refundTool, diesOrder) // the ledger says what came of it
	r.Payments = a.shop.paid(refundTool, diesOrder)
	a.screen.line("the tool %s says: %q. The agent asks for the refund again nevertheless", refundsTool, r.Verified)
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
	f.want("refunds after the server had broken off", r.Unknown.Payments, 1)
	f.must("a model was not told that the outcome is unknown", r.Unknown.Outcome == "unknown" && r.Unknown.Action == "verify")
	r.Faults, r.OK = f, len(f) == 0
}

func (s *Screen) agentsOpening(a *agents) {
	s.print(s.paint(bold, "A server of tools that pays as often as it is asked to, and Semel's gateway for MCP in front of it") + "\n")
	s.line("server   %s", a.server)
	s.line("gateway  %s", a.guard)
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
