package service

import (
	"cmp"
	"log/slog"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/internal/service/config"
)

// toolDoor offers the tools of a server over MCP. The guard of the generation records the outcomes
// of their calls and is closed with it. The gateway itself knows which pages may use it.
func (s *Server) toolDoor(g *generation, c *config.MCP) (d doorway, err error) {
	upstream, err := url.Parse(c.Upstream)
	if err != nil {
		return d, at("upstream", err)
	}
	tools := map[string]mcp.Tool{}
	for _, t := range c.Tools {
		var asks *mcp.Reconcile
		if r := &t.Reconcile; r.Tool != "" {
			asks = &mcp.Reconcile{Tool: r.Tool, Arguments: config.Pairs(r.Arguments), Done: r.Done, Absent: r.Absent, AbsentAfter: time.Duration(r.AbsentAfter)}
		}
		tools[t.Name] = mcp.Tool{
			Reconcile: asks, Operation: semel.Operation{Name: t.Operation}, ReadOnly: t.ReadOnly, Fields: t.KeyFields, KeyParameter: t.KeyParameter, OnDisconnect: t.OnDisconnect, NoHint: t.Hint == "off", VerifyWith: t.VerifyWith,
		}
	}
	gateway, err := mcp.NewGateway(g.guard, mcp.GatewayOptions{
		Operation: semel.Operation{Name: c.Operation}, Upstream: upstream, Path: c.Path, Tools: tools, TrustHints: c.TrustHints, Origins: c.Origins, Identify: g.verifiedCallers(&c.Callers), Answers: judge.Answers(c.Answers), Forward: g.forwarding(&c.Forwarding),
		MaxBody: int64(c.MaxBody), Timeout: time.Duration(c.Timeout), Wait: time.Duration(c.Wait), Echo: cmp.Or(time.Duration(c.Echo), -1), Attributes: config.Pairs(c.Attributes), Attrs: []slog.Attr{slog.String("path", c.Path)},
	})
	if err != nil {
		return d, err
	}
	g.upstreams = append(g.upstreams, gateway)
	hosts := func() []string { return s.current().cfg.Listen.Hosts }
	return doorway{Handler: s.onlyKnownHosts(gateway, hosts), declares: gateway.Declares, name: mcp.Name, upstream: c.Upstream, form: true, paths: []string{c.Path}, last: c.Path == "/"}, nil
}
