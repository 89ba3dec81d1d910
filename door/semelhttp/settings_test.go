package semelhttp_test

import (
	"errors"
	"io"
	"log"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

var discardLog = log.New(io.Discard, "", 0)

// settings is the world that a script asks for.
type settings struct {
	t       *testing.T
	handler string
	listen  string
	opts    semelhttp.Options
	route   semelhttp.Route
}

func newSettings(t *testing.T) *settings {
	return &settings{
		t: t, handler: "charge", listen: "203.0.113.1", opts: semelhttp.Options{StatusPath: "/semel/status/"},
		route: semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}},
	}
}

// apply reads one line of settings. It reports false for any other line.
func (s *settings) apply(line string) bool {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] == "#" {
		return true
	}
	switch words[0] {
	case "handler":
		s.handler = words[1]
	case "listen":
		s.listen = words[1]
	case "nostatus":
		s.opts.StatusPath = ""
	case "route":
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			s.set(name, value)
		}
	default:
		return false
	}
	return true
}

func (s *settings) set(name, value string) {
	rt, op := &s.route, &s.route.Operation
	var err error
	switch name {
	case "profile":
		var ok bool
		if rt.Profile, ok = semelhttp.ProfileByName(value); !ok {
			err = errors.New("no such profile")
		}
	case "key":
		rt.Key = semelhttp.KeyRule(value)
	case "body":
		rt.Body = semelhttp.BodyMode(value)
	case "methods":
		rt.Methods = strings.Split(value, ",")
	case "keep":
		rt.KeepHeaders = strings.Split(value, ",")
	case "notexecuted":
		rt.Answers.NotExecuted = strings.Split(value, ",")
	case "keepnothing":
		rt.KeepNothing = true
	case "ignoreflush":
		rt.IgnoreFlush = true
	case "maxstream":
		rt.MaxStream, err = strconv.ParseInt(value, 10, 64)
	case "headers":
		rt.FingerprintHeaders = strings.Split(value, ",")
	case "credential":
		rt.Credential = strings.Split(value, ",")
	case "scope":
		rt.ScopeHeaders = strings.Split(value, ",")
	case "anonymous":
		rt.Anonymous = semelhttp.Anonymous(value)
	case "maxbody":
		rt.MaxBody, err = strconv.ParseInt(value, 10, 64)
	case "maxresult":
		op.MaxResult, err = strconv.Atoi(value)
	case "timeout":
		rt.Timeout, err = time.ParseDuration(value)
	case "window":
		op.Window, err = time.ParseDuration(value)
	case "lease":
		op.Lease, err = time.ParseDuration(value)
	case "onfailure":
		op.OnFailure = semel.AfterFailure(value)
	case "onabandoned":
		op.OnAbandoned = semel.AfterAbandon(value)
	case "inflight":
		op.InFlight = semel.InFlightRule(value)
	case "effects":
		op.Effects = strings.Split(value, ",")
	case "refuselate":
		op.RefuseLate = true
	case "perrecord":
		op.PerRecord.Burst, err = strconv.Atoi(value)
		op.PerRecord.PerSecond = 1
	default:
		err = errors.New("what is it?")
	}
	if err != nil {
		s.t.Fatalf("setting %s=%s: %v", name, value, err)
	}
}

func (s *settings) world(t *testing.T) *world {
	h, ok := handlers[s.handler]
	if !ok {
		t.Fatalf("no handler %q", s.handler)
	}
	return newWorld(t, s.listen, s.opts, s.route, h)
}
