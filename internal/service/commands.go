package service

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/wire"
)

// commandsPath is where the service accepts commands. No route can hide it.
const commandsPath = "/v1/commands"

func (s *Server) commandDoors(g *generation) error {
	gateway, err := s.gateway(g, g.cfg.Commands.Registry)
	if err != nil {
		return at("commands.registry", err)
	}
	if gateway != nil {
		g.doors = append(g.doors, doorway{
			Handler: s.ownAPI(gateway), name: ids.Name, setting: "commands", paths: []string{commandsPath}, serves: below(commandsPath),
			declares: gateway.Declares, declaration: func(operation string) *wire.Declaration { return declarationOf(gateway.Declaration(operation)) },
		})
	}
	if c := &g.cfg.Commands.WhatsApp; c.On() {
		d, err := s.whatsAppDoor(gateway, c)
		if err != nil {
			return at("commands.whatsapp", err)
		}
		g.doors = append(g.doors, d)
	}
	return nil
}

// gateway makes the gateway for a registry; nil without one. Its handlers are upstreams.
func (s *Server) gateway(g *generation, registry string) (*ids.Gateway, error) {
	if registry == "" {
		return nil, nil
	}
	text, err := os.ReadFile(registry)
	if err != nil {
		return nil, err
	}
	reg, err := ids.Load(text, ids.LoadOptions{File: registry, Bindings: &ids.Bindings{}})
	if err != nil {
		return nil, err
	}
	for i := range reg.Commands {
		if c := &reg.Commands[i]; *c.Archive && !s.archives {
			return nil, fmt.Errorf("%s is archived before it is purged, and no archive is configured: write archive: {dir: ./semel-archive}, or archive: false in the command", c.Name())
		}
	}
	mandates := g.cfg.Commerce.Mandates()
	for command := range mandates {
		entity, action, _ := strings.Cut(command, ".")
		if _, ok := reg.Lookup(entity, action); !ok {
			return nil, fmt.Errorf("there is no command %s, which needs a mandate by commerce.commands", command)
		}
	}
	return ids.New(s.engine, ids.Options{
		Registry: reg, StatusURL: commandsPath, Attributes: config.Pairs(g.cfg.Commands.Attributes), Remember: ids.Duration(g.cfg.Commands.Remember),
		Admit: func(ctx context.Context, x semel.Execution, d *ids.Derivation) error {
			argument, needs := mandates[d.Command.Intent.Name()]
			if !needs {
				return nil
			}
			id, _ := jsonscan.Text(jsonscan.Member(d.Command.Args, argument))
			return g.underMandate(ctx, x, d.Command.TenantID, d.Principal, id)
		},
		Identify: func(r *http.Request) (ids.Caller, error) {
			id, err := g.auth.Known(r)
			return ids.Caller{Tenant: id.Tenant, Principal: id.Principal, Rights: id.Rights}, err
		},
	})
}

// declared is how the registry declares the command of an operation (IDS-VI.5); nil if it
// isn't one's.
func (s *Server) declared(operation string) *wire.Declaration {
	g := s.current()
	for i := range g.doors {
		if of := g.doors[i].declaration; of != nil {
			return of(operation)
		}
	}
	return nil
}

// declarationOf leaves out the address of a handler: that is the operator's own business.
func declarationOf(e *ids.Entry, ok bool) *wire.Declaration {
	if !ok {
		return nil
	}
	d := &wire.Declaration{
		Entity: e.Entity, Action: e.Action, Description: e.Description, Justification: e.Justification, Critical: e.Critical, CommandKind: e.CommandKind,
		Binding: wire.Binding{Principal: string(e.Binding.Principal), Acting: e.Binding.Acting}, Redact: []wire.Redaction{},
	}
	for _, r := range e.Redact {
		d.Redact = append(d.Redact, wire.Redaction{Path: string(r.Path), Unless: r.Unless})
	}
	return d
}

// ofOtherDoor reports whether an operation belongs to a command, to a message on its way,
// or to a route that doesn't share it. Through the execution API a caller could end such
// a call without what its door demands, and write the answers that others get.
func (s *Server) ofOtherDoor(operation string) bool {
	g := s.current()
	if operation == ids.MessageOperation || config.ReservedOperation(operation) {
		return true
	}
	return !g.cfg.ByAPI(operation) || slices.ContainsFunc(g.doors, func(d doorway) bool { return d.declares != nil && d.declares(operation) })
}
