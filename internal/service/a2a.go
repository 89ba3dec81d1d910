package service

import (
	"log/slog"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/service/config"
)

// agentDoor offers an agent over A2A. The guard of the generation records the outcomes of its
// messages and is closed with it. The rules of ownAPI apply.
func (s *Server) agentDoor(g *generation, c *config.A2A) (d doorway, err error) {
	upstream, err := url.Parse(c.Upstream)
	if err != nil {
		return d, at("upstream", err)
	}
	gateway, err := a2a.NewGateway(g.guard, a2a.GatewayOptions{
		Operation: semel.Operation{Name: c.Operation}, Upstream: upstream, Answers: judge.Answers(c.Answers), Path: c.Path, Identify: g.verifiedCallers(&c.Callers), Forward: g.forwarding(&c.Forwarding),
		MaxBody: int64(c.MaxBody), Timeout: time.Duration(c.Timeout), Wait: time.Duration(c.Wait), Attributes: config.Pairs(c.Attributes), Attrs: []slog.Attr{slog.String("path", c.Path)},
	})
	if err != nil {
		return d, err
	}
	g.upstreams = append(g.upstreams, gateway)
	return doorway{
		Handler: s.ownAPI(gateway), name: a2a.Name, upstream: c.Upstream, form: true, paths: []string{c.Path}, serves: below(c.Path),
		last: c.Path == "/",
	}, nil
}
