package config

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/strictyaml"
)

// Policy is the operation for the engine. The server sets two members: Reconcile, if there is
// somebody to ask, and Authorize, which share: tenant needs. The error is that
// of [semel.Operation.Validate].
func (o Operation) Policy() (semel.Operation, error) {
	op := semel.Operation{
		Name: o.Name, Class: o.Class, Financial: o.Financial,
		Window: time.Duration(o.Window), Remember: time.Duration(o.Remember), Lease: time.Duration(o.Lease),
		OnFailure: o.OnFailure, OnAbandoned: o.OnAbandoned, InFlight: o.InFlight,
		MaxWait: time.Duration(o.MaxWait), Share: o.Share, MaxResult: int(o.MaxResult),
		Shields: o.Shields, Effects: o.Effects, ReconcileEvery: time.Duration(o.ReconcileEvery),
		RefuseLate: o.RefuseLate, Sequenced: o.Sequenced, Gapless: o.Gapless, KeepPayload: o.KeepPayload,
		OnExpiry: semel.DeleteExpired, Evidence: o.Evidence,
		PerRecord: semel.Rate(o.PerRecord), PerPrincipal: semel.Rate(o.PerPrincipal),
	}
	if o.Archive {
		op.OnExpiry = semel.ArchiveExpired
	}
	if o.Confirm > 0 {
		op.Confirmation = &semel.ConfirmationPolicy{TTL: time.Duration(o.Confirm)}
	}
	checked := op
	if o.Share == semel.ShareTenant {
		checked.Authorize = func(context.Context, semel.Call, semel.Record) error { return nil }
	}
	if o.asks() {
		checked.Reconcile = func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil }
	}
	return op, checked.Validate()
}

func (v *validator) remembering(at string, remember, window Duration) {
	if remember != 0 && remember < window {
		v.bad(at+".remember", "write a longer time, or leave it out", "%v is shorter than the window of %v: a call isn't forgotten before its answer", remember, window)
	}
}

func (k KeyTemplate) guarded() semelhttp.KeyTemplate {
	t := semelhttp.KeyTemplate{Template: k.Template, Scope: k.Scope, ScopeField: k.ScopeField, Values: Pairs(k.Values)}
	if f, ok := commerce.FormatByName(k.Format); ok {
		t.Template, t.Scope, t.ScopeField = f.Template, f.Scope, f.ScopeField
	}
	return t
}

// Pairs are the texts NAME=VALUE by name; nil if there are none.
func Pairs(list []string) map[string]string {
	if list == nil {
		return nil
	}
	m := make(map[string]string, len(list))
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		m[name] = value
	}
	return m
}

// attributes checks the attributes of a door that isn't a route.
func (v *validator) attributes(at, door string, list []string) {
	if _, err := extract.NewNames(door, Pairs(list)); err != nil && !v.faultyBelow(at+".attributes") {
		v.bad(at+".attributes", "", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// Guarded is the route for the middleware, with the attributes of its operation. The operation in
// it has only a name, which stands for the one that the engine has.
func (c *Config) Guarded(r Route) semelhttp.Route {
	profile, _ := semelhttp.ProfileByName(r.Profile)
	attributes := Pairs(r.Attributes)
	if op := c.operation(r.Operation); op != nil && op.Attributes != nil {
		attributes = Pairs(op.Attributes)
		maps.Copy(attributes, Pairs(r.Attributes))
	}
	return semelhttp.Route{
		Operation: semel.Operation{Name: r.Operation}, Profile: profile, Key: r.Key, KeyHeader: r.KeyHeader,
		Body: r.Body, MaxBody: int64(r.MaxBody), Streams: semelhttp.Streams{MaxStream: int64(r.MaxStream)},
		Timeout: time.Duration(r.Timeout), Credential: r.Credential, ScopeHeaders: r.ScopeHeaders,
		Anonymous: r.Anonymous, FailOpen: r.StoreDown == "fail_open",
		Methods: r.Methods, FingerprintHeaders: r.FingerprintHeaders, KeepHeaders: r.KeepHeaders, Origins: r.Origins, Answers: judge.Answers(r.Answers),
		KeyFrom: r.KeyFrom, KeyTemplate: r.KeyTemplate.guarded(), Sequence: r.Sequence, Attributes: attributes,
		FingerprintOnly: r.Fingerprint.Only, FingerprintIgnore: r.Fingerprint.Ignore,
	}
}

// AttributeNames are the names of attributes that records have by the configuration, each once.
func (c *Config) AttributeNames() []string {
	all := map[string]string{}
	strictyaml.EachLeaf("", reflect.ValueOf(c).Elem(), func(path string, v reflect.Value, _ strictyaml.Field) {
		if list, ok := v.Interface().([]string); ok && strings.HasSuffix(path, ".attributes") {
			maps.Copy(all, Pairs(list))
		}
	})
	for i := range c.Webhooks {
		if source, err := c.Webhooks[i].ReadSource(); err == nil {
			for _, a := range source.Attributes {
				all[a.Name] = ""
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Archives reports whether there may be records for the archive: of an operation, of a payment,
// or of a command, which its registry declares.
func (c *Config) Archives() bool {
	return c.Commerce.ChargeURL != "" || c.Commands.Registry != "" && c.Archive.configured || slices.ContainsFunc(c.Operations, func(op Operation) bool { return op.Archive })
}

// KeepsEvidence reports whether any operation, or a door that accepts events and activities, keeps evidence.
func (c *Config) KeepsEvidence() bool {
	keeps := func(level semel.EvidenceLevel) bool { return level != "" && level != semel.EvidenceNone }
	return slices.ContainsFunc(c.Operations, func(op Operation) bool { return keeps(op.Evidence) }) ||
		slices.ContainsFunc(c.Webhooks, func(w Webhook) bool { return keeps(w.Evidence) }) ||
		slices.ContainsFunc(c.ActivityPub, func(a ActivityPub) bool { return keeps(a.Evidence) })
}

// Name is the URL without its secrets, for logs.
func (s Store) Name() string { return hide("url", s.URL) }

// Answers say what an upstream's answers mean; see [judge.Answers].
type Answers struct {
	// Answers that prove that nothing was done, so the next delivery runs: a status such as 503, or a status and a condition such as 302 header:Location=/sign-in* or 200 json:/error/code=THROTTLED. Everybody in front of the upstream who can give one has to keep that promise.
	NotExecuted []string `json:"not_executed,omitempty" numbers:"true"`
	// Answers that prove nothing, in the same form: the call is held until it is settled, or runs again by on_abandoned: retry.
	Unknown []string `json:"unknown,omitempty" numbers:"true"`
	// Answers that refuse for good, in the same form: every duplicate gets the same.
	Final []string `json:"final,omitempty" numbers:"true"`
}

func (v *validator) answers(at string, a Answers) {
	if v.faultyBelow(at + ".answers") {
		return
	}
	for _, wrong := range judge.Answers(a).Check() {
		v.bad(fmt.Sprintf("%s.answers.%s[%d]", at, wrong.List, wrong.At), "", "%s", wrong.Why)
	}
}

// Meaning is what an answer with a status means that comes from one upstream.
type Meaning struct {
	// Setting is the part of the configuration that has the upstream.
	Setting string `json:"setting"`
	// Match says which requests reach it: a pattern, a path or the name of a function.
	Match string `json:"match"`
	// Status is that of the answer.
	Status int `json:"status"`
	// Proves is the verdict: completed, rejected, aborted, failed or unknown.
	Proves string `json:"proves"`
	// Next is what the next delivery of the call gets.
	Next string `json:"next"`
	// Conditions are the entries of answers that come first if they match, each with its
	// verdict.
	Conditions []string `json:"conditions,omitempty"`
}

// Meanings are what an answer with a status and nothing else means, by upstream.
func (c *Config) Meanings(status int) (list []Meaning) {
	add := func(setting, match, operation string, rules judge.Rules) {
		m, v := meaning(setting, match, status, rules, "gets the same answer")
		switch op := c.operation(operation); {
		case v == judge.Aborted, v == judge.Failed && op != nil && op.OnFailure == semel.RetryFailure:
			m.Next = "runs"
		case v == judge.Unknown && op != nil && op.OnAbandoned == semel.RetryAbandoned && op.Effects == nil:
			m.Next = "runs, by on_abandoned: retry"
		case v == judge.Unknown:
			m.Next = "is held until the call is settled"
		}
		list = append(list, m)
	}
	financial := func(operation string) bool { op := c.operation(operation); return op != nil && op.Financial }
	for at, r := range items("routes", c.Routes) {
		rt := c.Guarded(*r)
		rt.Forwards = true
		add(at, r.Match, r.Operation, rt.Rules(financial(r.Operation)))
	}
	for at, f := range items("forrst", c.Forrst) {
		answers, _ := judge.Answers(f.Answers).Parse()
		for at, fn := range items(at+".functions", f.Functions) {
			add(at, fn.Name, fn.Operation, judge.Rules{Answers: answers, Financial: financial(fn.Operation)})
		}
	}
	for at, a := range items("a2a", c.A2A) {
		answers, _ := judge.Answers(a.Answers).Parse()
		add(at, a.Path, a.Operation, judge.Rules{Answers: answers, Financial: financial(a.Operation), RedirectsUnclear: true})
	}
	for at, m := range items("mcp", c.MCP) {
		answers, _ := judge.Answers(m.Answers).Parse()
		add(at, m.Path, m.Operation, judge.Rules{Answers: answers, Financial: financial(m.Operation), RedirectsUnclear: true})
	}
	return append(list, c.eventMeanings(status)...)
}

func meaning(setting, match string, status int, rules judge.Rules, next string) (Meaning, judge.Verdict) {
	v := rules.Of(judge.Answer{Status: status}).Verdict
	return Meaning{Setting: setting, Match: match, Status: status, Proves: v.String(), Next: next, Conditions: rules.Conditions(status)}, v
}
