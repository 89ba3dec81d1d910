package ids

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/strictyaml"
)

// linter finds faults in a registry that could be read.
type linter struct {
	*strictyaml.Report
	known *Bindings // nil: don't check names of functions
	inGo  bool      // declared in Go, so without lines
	at    string    // path of the declaration
}

// word is the form of an entity or an action. It excludes dots, so that a command's name is
// unambiguous.
var word = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

// headerName is the form of a header's name (RFC 9110, 5.1).
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// minCriticalWindow is the shortest window that needs no justification.
const minCriticalWindow = 24 * time.Hour

func (l *linter) registry(reg *Registry) {
	if reg.Version != 1 && !l.Faulty["version"] {
		l.Add("version", fmt.Sprintf("version %d is not known", reg.Version), "write version: 1")
	}
	if len(reg.Commands) == 0 {
		l.Add("commands", "there is no command", "")
	}
	first := map[string]int{}
	for i := range reg.Commands {
		e := &reg.Commands[i]
		before := len(l.List)
		e.at = fmt.Sprintf("commands[%d]", i)
		if l.at = e.at; l.Faulty[e.at] {
			continue // it couldn't be parsed
		}
		l.entry(e)
		if at, twice := first[e.Name()]; twice && e.Entity != "" && e.Action != "" {
			where := fmt.Sprintf("commands[%d]", at)
			if !l.inGo {
				where = fmt.Sprintf("in line %d", l.Origins.Of(where).Line)
			}
			l.Add(e.at, e.Name()+" is declared twice", "the first is "+where)
		} else {
			first[e.Name()] = i
		}
		for _, p := range l.List[before:] {
			p.Command = e.Name()
		}
	}
	for i := range reg.Commands {
		l.compensation(reg, &reg.Commands[i])
	}
}

// dangerous are the kinds of command that a person should confirm.
var dangerous = []string{"destructive", "administrative"}

// Unconfirmed returns the commands that are destructive or administrative by their command_kind
// and run without a confirmation (IDS-X.5). That is a warning and no fault: the person may have
// been asked elsewhere.
func (reg *Registry) Unconfirmed() (all []*Entry) {
	for i := range reg.Commands {
		if e := &reg.Commands[i]; e.Confirmation == nil && slices.Contains(dangerous, e.CommandKind) {
			all = append(all, e)
		}
	}
	return all
}

// add reports a fault of a setting of the declaration, but only the first of each setting.
func (l *linter) add(field, message, hint string) { l.Add(join(l.at, field), message, hint) }

func (l *linter) when(wrong bool, field, message, hint string) {
	if wrong {
		l.add(field, message, hint)
	}
}

// entry checks one declaration, fills in its defaults and compiles its schema.
func (l *linter) entry(e *Entry) {
	for _, field := range []struct{ name, value string }{{"entity", e.Entity}, {"action", e.Action}} {
		l.when(field.value != "" && !word.MatchString(field.value), field.name, "this isn't a word",
			"write up to 64 lower-case letters, digits, _ and -, beginning with a letter")
	}
	l.when(e.Class == semel.Windowed && e.Window == 0, "window", "class I2 needs a window of its own",
		"write how long duplicates are to be expected, such as window: 1h")
	e.fill()
	l.class(e)
	l.window(e)
	l.when(e.Binding.Principal == BindEffectiveActor && len(e.Binding.Acting) == 0, "binding.acting",
		"effective_actor without a declaration of who may act for another", "write acting: and the rights, such as ['orders:retry']")
	l.when(e.Binding.Principal == BindActor && len(e.Binding.Acting) > 0, "binding.acting",
		"acting is for commands that are bound to effective_actor", "write principal: effective_actor")
	l.args(e)
	l.needs(e)
}

func (l *linter) needs(e *Entry) {
	l.shields(e)
	l.handler(e)
	l.policy(e)
}

func (l *linter) class(e *Entry) {
	weak, grave := e.Class == semel.ReadOnly || e.Class == semel.Windowed, e.Financial || e.Critical
	l.when(!e.mutates() && e.Class != semel.ReadOnly, "class",
		fmt.Sprintf("class %s is for mutations, and this command changes nothing", e.Class), "leave class or mutates out")
	l.when(e.mutates() && weak && e.Justification == "", "class",
		fmt.Sprintf("class %s is weaker than I1, and there is no justification", e.Class), "write justification: and why duplicates do no harm, or leave class out")
	l.when(e.Class == semel.ReadOnly && grave, "class",
		"a financial or critical command of class I0 would run once for each delivery", "leave class out")
	l.when(e.mutates() && e.Evidence != semel.EvidenceDecisions && e.Evidence != semel.EvidenceDurable, "evidence",
		fmt.Sprintf("with evidence %s nobody can tell whether a mutation was executed or replayed", e.Evidence), "write decisions or durable")
	l.when(e.mutates() && grave && e.Evidence != semel.EvidenceDurable, "evidence",
		"a crash could lose evidence of what duplicates of a financial or critical command got", "write durable, or leave evidence out")
}

func (l *linter) window(e *Entry) {
	window := time.Duration(e.Window)
	switch {
	case window == 0 || e.Class == semel.ReadOnly:
	case (e.Financial || e.Critical) && window < minCriticalWindow:
		l.add("window", fmt.Sprintf("%s is too short for a financial or critical command", e.Window), "write 24h or more")
	case e.Class != semel.Windowed && window < minCriticalWindow && e.Justification == "":
		l.add("window", fmt.Sprintf("%s is short for class %s: a later duplicate executes again", e.Window, e.Class), "write 24h or more, or justification: and why that does no harm")
	case e.Critical && e.Late == LateRuns:
		l.add("late", "a critical command that comes after its window may have been executed and forgotten", "leave late out")
	case e.Confirmation != nil && e.Window < e.Confirmation.TTL:
		l.add("window", fmt.Sprintf("%s is shorter than the confirmation's ttl of %s", e.Window, e.Confirmation.TTL), "")
	case e.Handler.URL != "" && e.Window < e.Handler.Timeout:
		l.add("window", fmt.Sprintf("%s is shorter than the handler's timeout of %s", e.Window, e.Handler.Timeout), "")
	}
}

func (l *linter) shields(e *Entry) {
	l.when(e.Class == semel.Shielded && len(e.Shields) == 0, "class", "class I3 has no shield", "write shields: and at least one of S1, S2, S3 and S4")
	l.when(e.Class != semel.Shielded && len(e.Shields) > 0, "shields", fmt.Sprintf("shields are for class I3, not %s", e.Class), "write class: I3")
	for i, s := range e.Shields {
		at := fmt.Sprintf("shields[%d].", i)
		twice := func(o ShieldEntry) bool { return o.Strategy == s.Strategy }
		l.when(slices.ContainsFunc(e.Shields[:i], twice), at+"strategy", string(s.Strategy)+" is given twice", "keep one of them")
		for _, need := range []struct {
			by                 semel.Shield
			field, value, hint string
		}{
			{semel.ShieldOutbox, "destination", s.Destination, "write the name of the receiver"},
			{semel.ShieldReconcile, "reconciler", cmp.Or(s.Reconciler, s.ReconcileURL, s.Reconcile.Source), "write the name of the function that asks the provider what became of the effect, a reconcile_url, or reconcile and a source"},
			{semel.ShieldReconcile, "compensation", s.Compensation, "write the command that undoes this one, such as order.reopen"},
			{semel.ShieldReconcile, "compensator", cmp.Or(s.Compensator, s.CompensateURL), "write the name of the function that undoes, or a compensate_url"},
		} {
			l.when(s.Strategy == need.by && need.value == "", at+need.field, fmt.Sprintf("%s needs a %s", need.by, need.field), need.hint)
			l.when(s.Strategy != need.by && need.value != "", at+need.field, fmt.Sprintf("%s is for %s, not %s", need.field, need.by, s.Strategy), "")
		}
		l.either(at, "reconciler", s.Reconciler, "reconcile_url", s.ReconcileURL)
		if err := s.Reconcile.Check(time.Duration(e.Handler.Timeout)); s.Reconcile.On() {
			l.when(err != nil, at+"reconcile", fmt.Sprint(err), "")
			l.when(s.Reconciler+s.ReconcileURL != "", at+"reconcile", "somebody else is asked too", "keep one of them")
		}
		l.either(at, "compensator", s.Compensator, "compensate_url", s.CompensateURL)
		l.when(s.Strategy != semel.ShieldProviderKey && s.Header != "", at+"header", "header is for S1, not "+string(s.Strategy), "")
		l.when(s.Header != "" && !headerName.MatchString(s.Header), at+"header", "this isn't the name of a header", "write one as in Idempotency-Key")
		l.when(s.Strategy == semel.ShieldLedger && len(s.Effects) == 0, at+"effects", "S3 needs the names of the effects in the ledger", "write effects: [provider.capture]")
		l.named(at+"reconciler", s.Reconciler)
		l.named(at+"compensator", s.Compensator)
	}
	l.when(e.Class == semel.Shielded && e.OnAbandoned == semel.RetryAbandoned && e.shield(semel.ShieldProviderKey) == nil, "on_abandoned",
		"retry would repeat an effect that may have happened", "write hold, or shield the effect with S1")
}

func (l *linter) compensation(reg *Registry, e *Entry) {
	for i, s := range e.Shields {
		undoes := func(o Entry) bool { return o.Name() == s.Compensation }
		if s.Compensation != "" && !slices.ContainsFunc(reg.Commands, undoes) {
			l.Add(fmt.Sprintf("%s.shields[%d].compensation", e.at, i), "there is no command "+s.Compensation, "declare it")
		}
	}
}

// either checks that exactly one of a function and a URL is given, and that the URL is valid.
func (l *linter) either(at, name, function, urlName, text string) {
	l.when(function != "" && text != "", at+urlName, fmt.Sprintf("both %s and %s are given", name, urlName), "keep one of them")
	l.url(at+urlName, text)
}

func (l *linter) url(field, text string) {
	u, err := url.Parse(text)
	l.when(text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != ""), field,
		"this isn't the URL of an upstream", "write it as in https://orders.internal/cancel, without a user and a fragment")
}

// named checks that there is a function with this name, if the functions are known.
func (l *linter) named(field, name string) {
	if l.known == nil || name == "" {
		return
	}
	kind := field[strings.LastIndexByte(field, '.')+1:]
	known := map[string][]string{
		"func": slices.Sorted(maps.Keys(l.known.Handlers)), "step_up": slices.Sorted(maps.Keys(l.known.StepUps)),
		"reconciler": slices.Sorted(maps.Keys(l.known.Reconcilers)), "compensator": slices.Sorted(maps.Keys(l.known.Compensators)),
	}[kind]
	suggestion := "there is none"
	if len(known) > 0 {
		suggestion = "there are " + strings.Join(known, ", ")
	}
	l.when(!slices.Contains(known, name), field, fmt.Sprintf("there is no %s %q", strings.Replace(kind, "func", "handler", 1), name), suggestion)
}

func (l *linter) handler(e *Entry) {
	h := e.Handler
	for _, field := range []string{"handler", "handler.url", "handler.func"} {
		if l.Faulty[join(l.at, field)] {
			return
		}
	}
	switch {
	case h.Func == "" && h.URL == "":
		l.add("handler", "neither func nor url is given", "")
	case h.Func != "" && h.URL != "":
		l.add("handler", "both func and url are given", "keep one of them")
	case h.Func != "" && h.Timeout != 0:
		l.add("handler.timeout", "timeout is for handlers with a url", "")
	case h.Func != "" && h.Answers.Any():
		l.add("handler.answers", "answers are for handlers with a url", "")
	case h.Func != "":
		l.named("handler.func", h.Func)
	case h.URL != "":
		l.url("handler.url", h.URL)
		for _, wrong := range h.Answers.Check() {
			l.add(fmt.Sprintf("handler.answers.%s[%d]", wrong.List, wrong.At), wrong.Why, "")
		}
	}
}

// policy checks confirmations and redactions; [semel.Operation.Validate] checks the rest.
func (l *linter) policy(e *Entry) {
	if c := e.Confirmation; c != nil {
		most := Duration(semel.MaxConfirmationTTL)
		l.when(c.TTL > most, "confirmation.ttl", fmt.Sprintf("%s is not short-lived", c.TTL), fmt.Sprintf("write %s or less", most))
		l.when(e.Class == semel.ReadOnly, "confirmation", "class I0 changes nothing and needs no confirmation", "")
		l.either("confirmation.", "step_up", c.StepUp, "step_up_url", c.StepUpURL)
		l.named("confirmation.step_up", c.StepUp)
	}
	for i, r := range e.Redact {
		l.path(fmt.Sprintf("redact[%d].path", i), r.Path)
	}
	if slices.ContainsFunc(l.List, func(p *Problem) bool { return p.Path == e.at || strings.HasPrefix(p.Path, e.at+".") }) {
		return // whatever the operation reports would follow from that
	}
	op := e.operation(&Bindings{Authorize: func(context.Context, *Entry, semel.Call, semel.Record) error { return nil }}, true)
	if err := op.Validate(); err != nil {
		for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
			l.Add(e.at, strings.TrimPrefix(one.Error(), "semel: "+string(semel.CodeInvalidOperation)+": "), "")
			l.Faulty[e.at] = false
		}
	}
}

func (l *linter) path(field string, p Path) bool {
	_, ok := p.steps()
	l.when(!ok && p != "", field, "this isn't a path", "write names joined by dots, with [] behind an array: items[].sku") // another check reports an empty path
	return ok
}
