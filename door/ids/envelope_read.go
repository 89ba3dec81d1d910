package ids

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/strictyaml"
)

// maxComplaints is how many mistakes of one envelope the reader reports.
const maxComplaints = 20

// envelopeReader collects the faults of an envelope.
type envelopeReader struct{ errs []error }

// bad reports a mistake. It drops mistakes beyond a bound, so that an answer isn't larger than
// the envelope.
func (r *envelopeReader) bad(path, format string, args ...any) {
	if len(r.errs) >= maxComplaints {
		return
	}
	r.errs = append(r.errs, &Error{Reason: ReasonEnvelope, Path: brief(path), Message: fmt.Sprintf(format, args...)})
}

func (r *envelopeReader) err() error { return oneOrAll(r.errs) }

// oneOrAll returns a single error as it is, or joins several.
func oneOrAll(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

func (r *envelopeReader) command(text []byte) (c Command) {
	if len(text) > MaxEnvelope {
		r.bad("", "the envelope has %d bytes, more than %d", len(text), MaxEnvelope)
		return c
	}
	if jsonscan.Values(text) > argschema.MaxValues {
		r.bad("", "the envelope has more than %d values", argschema.MaxValues)
		return c
	}
	// From here on it reads the canonical form, in which names are unique and all text is
	// valid, so all readers see the same.
	text, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		r.errs = append(r.errs, &Error{Reason: ReasonEnvelope, Message: "no strict JSON", Err: err})
		return c
	}
	r.object("", text, members{
		"command_id":         func(p string, v []byte) { c.CommandID = r.text(p, v, maxID) },
		"tenant_id":          func(p string, v []byte) { c.TenantID = r.text(p, v, maxID) },
		"actor_id":           func(p string, v []byte) { c.ActorID = r.text(p, v, maxID) },
		"effective_actor_id": func(p string, v []byte) { c.EffectiveActorID = r.text(p, v, maxID) },
		"intent":             func(p string, v []byte) { c.Intent = r.intent(p, v) },
		"args": func(p string, v []byte) {
			if r.opens(p, v) {
				c.Args = v
			}
		},
		"command_kind":       func(p string, v []byte) { c.CommandKind = r.text(p, v, maxID) },
		"correlation_id":     func(p string, v []byte) { c.CorrelationID = r.text(p, v, maxID) },
		"trace":              func(p string, v []byte) { c.Trace = r.trace(p, v) },
		"sent_at":            func(p string, v []byte) { c.SentAt = r.instant(p, v) },
		"received_at":        func(p string, v []byte) { c.ReceivedAt = r.instant(p, v) },
		"idempotency_key":    func(p string, v []byte) { c.IdempotencyKey = r.text(p, v, maxKey) },
		"confirmation_token": func(p string, v []byte) { c.ConfirmationToken = r.text(p, v, maxSecret) },
		"step_up":            func(p string, v []byte) { c.StepUp = r.text(p, v, maxSecret) },
	}, "tenant_id", "intent")
	if c.ActorID == "" && c.EffectiveActorID == "" && len(r.errs) == 0 {
		r.bad("actor_id", "neither actor_id nor effective_actor_id is given")
	}
	return c
}

// members are the readers of an object's members, by name.
type members map[string]func(path string, value []byte)

// object reads an object that may have the known members and must have the required ones. It
// stops when it can't report more mistakes.
func (r *envelopeReader) object(path string, text []byte, known members, required ...string) {
	if !r.opens(path, text) {
		return
	}
	given := make(map[string]bool, len(known))
	for name, value := range jsonscan.Members(text) {
		if len(r.errs) >= maxComplaints {
			return
		}
		if read := known[string(name)]; read != nil {
			read(join(path, string(name)), value)
			given[string(name)] = true
		} else {
			r.bad(join(path, brief(string(name))), "an envelope has no such member")
		}
	}
	for _, name := range required {
		if !given[name] {
			r.bad(join(path, name), "it is missing")
		}
	}
}

// opens reports whether a value is an object.
func (r *envelopeReader) opens(path string, text []byte) bool {
	if !begins(text, '{') {
		r.bad(path, "it is %s, not an object", kindOf(text))
		return false
	}
	return true
}

// text reads a string that is not empty.
func (r *envelopeReader) text(path string, value []byte, most int) string {
	s, is := jsonscan.Text(value)
	switch {
	case !is:
		r.bad(path, "it is %s, not a string", kindOf(value))
	case s == "":
		r.bad(path, "it is empty")
	case len(s) > most:
		r.bad(path, "it has %d bytes, more than %d", len(s), most)
	case strings.IndexByte(s, 0) >= 0:
		r.bad(path, "it has a NUL character")
	}
	return s
}

func (r *envelopeReader) intent(path string, value []byte) (i Intent) {
	r.object(path, value, members{
		"entity": func(p string, v []byte) { i.Entity = r.text(p, v, maxID/2-1) },
		"action": func(p string, v []byte) { i.Action = r.text(p, v, maxID/2) },
		"target": func(p string, v []byte) { i.Target = r.target(p, v) },
	}, "entity", "action")
	return i
}

func (r *envelopeReader) target(path string, value []byte) Target {
	switch {
	case begins(value, 'n'):
		return NullTarget()
	case begins(value, '"'):
		return TargetOf(r.text(path, value, maxID))
	case !begins(value, '['):
		r.bad(path, "it is %s, not a string, an array of strings or null", kindOf(value))
		return Target{}
	}
	var ids []string
	for item := range jsonscan.Items(value) {
		if len(ids) == maxTargets {
			r.bad(path, "it has more than %d items", maxTargets)
			return Target{}
		}
		ids = append(ids, r.text(fmt.Sprintf("%s[%d]", path, len(ids)), item, maxID))
	}
	return TargetsOf(ids...)
}

func (r *envelopeReader) trace(path string, value []byte) Trace {
	if !r.opens(path, value) {
		return nil
	}
	trace := Trace{}
	seen := 0
	for unescaped, text := range jsonscan.Members(value) {
		if seen++; seen > maxTrace {
			r.bad(path, "it has more than %d members", maxTrace)
			return nil
		}
		name := string(unescaped)
		at := join(path, name)
		if len(name) > maxID/4 || strings.IndexByte(name, 0) >= 0 {
			r.bad(path, "a name in it is longer than %d bytes or has a NUL character", maxID/4)
			continue
		}
		switch kindOf(text) {
		case "a string":
			trace[name] = r.text(at, text, maxTraced)
		case "a number", "a boolean":
			if trace[name] = string(text); len(text) > maxTraced {
				r.bad(at, "it has %d bytes, more than %d", len(text), maxTraced)
			}
		default:
			r.bad(at, "it is %s, not a string, a number or a boolean", kindOf(text))
		}
	}
	return trace
}

func (r *envelopeReader) instant(path string, value []byte) time.Time {
	before := len(r.errs)
	text := r.text(path, value, maxID)
	t, err := time.Parse(time.RFC3339Nano, text)
	if len(r.errs) == before && (err != nil || !rfc3339.MatchString(text)) { // time.Parse also reads 2026-01-02T3:04:05,5Z
		r.bad(path, "it is no time in the form of RFC 3339")
	}
	return t
}

var rfc3339 = regexp.MustCompile(`^[0-9-]{10}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`)

func begins(value []byte, c byte) bool { return len(value) > 0 && value[0] == c }

// kinds are the types of JSON values by their first byte, except numbers.
var kinds = map[byte]string{'{': "an object", '[': "an array", '"': "a string", 't': "a boolean", 'f': "a boolean", 'n': "null"}

// kindOf names the type of a JSON value.
func kindOf(value []byte) string {
	if len(value) == 0 {
		return "nothing"
	}
	return cmp.Or(kinds[value[0]], "a number")
}

// maxShown bounds a caller's own name in an error, in bytes.
const maxShown = 256

// brief returns a caller's own name, or its beginning if it is too long to show.
func brief(name string) string {
	if len(name) <= maxShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxShown], "") + "…"
}

// join appends a name to a path.
func join(path, name string) string { return strictyaml.Join(path, name) }
