package service

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/service/config"
)

// a2aDoors are the agents of a configuration. The outcomes of messages are recorded by the
// generation's guard, which is closed with it. They have the rules of ownAPI.
func (s *Server) a2aDoors(g *generation, cfg *config.Config) (doors []doorway, err error) {
	for i := range cfg.A2A {
		c := &cfg.A2A[i]
		upstream, err := url.Parse(c.Upstream)
		if err != nil {
			return nil, at(fmt.Sprintf("a2a[%d].upstream", i), err)
		}
		forward := semelproxy.Options{
			Identity: g.auth.HTTPIdentity(), StripHeaders: g.auth.IdentityHeaders(), TrustedProxies: cfg.Listen.Trusted(),
			EffectHeader: c.EffectHeader, TenantHeader: c.TenantHeader, PrincipalHeader: c.PrincipalHeader,
			Transport: semelproxy.TransportOptions{MaxConns: c.UpstreamConnections},
		}
		if !c.ForwardCredential {
			forward.OwnCredential = ownCredential
		}
		gateway, err := a2a.NewGateway(g.guard, a2a.GatewayOptions{
			Operation: semel.Operation{Name: c.Operation}, Upstream: upstream, Answers: judge.Answers(c.Answers), Path: c.Path, Identify: g.verifiedCallers(&c.Callers), Forward: forward,
			MaxBody: int64(c.MaxBody), Timeout: time.Duration(c.Timeout), Wait: time.Duration(c.Wait), Attrs: []slog.Attr{slog.String("path", c.Path)},
		})
		if err != nil {
			return nil, at(fmt.Sprintf("a2a[%d]", i), err)
		}
		below := strings.TrimSuffix(c.Path, "/") + "/"
		doors = append(doors, doorway{
			Handler: s.ownAPI(gateway), name: a2a.Name, form: true, paths: []string{c.Path}, serves: func(path string) bool { return strings.HasPrefix(path, below) },
			last: c.Path == "/", interrupt: gateway.Interrupt, close: gateway.Close,
		})
	}
	return doors, nil
}
