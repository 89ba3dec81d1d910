package keytemplate

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Rule is the stable name of a lint rule.
type Rule string

// The rules.
const (
	RuleSyntax   Rule = "syntax"   // the template is malformed, or its fields can run into each other
	RuleEmpty    Rule = "empty"    // the template is empty
	RuleConstant Rule = "constant" // it has no field: all calls would share one key
	RuleScope    Rule = "scope"    // no field says what the call is about, or whose it is
	RuleTime     Rule = "time"     // a time, which differs in every delivery
	RuleRandom   Rule = "random"   // a random token
	RuleMessage  Rule = "message"  // the id of a message, which a retry may change
	RuleAttempt  Rule = "attempt"  // a counter of attempts
	RuleDelivery Rule = "delivery" // where or how a delivery arrived
)

// A Problem is one thing in a template that would break idempotency.
type Problem struct {
	Rule Rule `json:"rule"`
	// Column is the position in the template, in bytes from 1.
	Column int `json:"column"`
	// Field is the name of the field at fault; empty if it is the whole template.
	Field string `json:"field,omitempty"`
	// Message names the fault, and Suggestion says what to do.
	Message    string `json:"message"`
	Suggestion string `json:"suggestion"`
}

// Lint finds everything in a template that would give each delivery of one call a different
// key, or different calls the same key (IDS-VII.4). It looks at the fields' names. The result
// is in order of position, and empty if nothing is wrong.
func Lint(text string) []Problem {
	if strings.TrimSpace(text) == "" {
		return []Problem{{Rule: RuleEmpty, Column: 1, Message: "the template is empty", Suggestion: "name the kind of call and what it is about, as in order:{order_id}"}}
	}
	t, err := Parse(text)
	problems := syntaxProblems(err)
	fields, scoped := 0, false
	for _, p := range t.parts {
		if p.name == "" {
			continue
		}
		fields++
		if r, ok := ruleAgainst(p.name); ok {
			problems = append(problems, Problem{Rule: r.rule, Column: p.column, Field: p.name, Message: r.message, Suggestion: r.suggest(p.name)})
		} else {
			scoped = scoped || identifies(p.name)
		}
	}
	switch {
	case fields == 0 && len(problems) == 0:
		problems = append(problems, Problem{Rule: RuleConstant, Column: 1, Message: "the template has no field, so all calls would share one key", Suggestion: "add the id of what the call is about, as in order:{order_id}"})
	case fields > 0 && !scoped:
		problems = append(problems, Problem{Rule: RuleScope, Column: 1, Message: "no field says whose or which thing the call is about, so different calls would share a key", Suggestion: "add the id of the order, user, session, event or entity, as in {order_id}"})
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Column, b.Column) })
	return problems
}

// LintName checks a single name, such as a key input's.
func LintName(name string) (Problem, bool) {
	r, ok := ruleAgainst(name)
	if !ok {
		return Problem{}, false
	}
	return Problem{Rule: r.rule, Column: 1, Field: name, Message: r.message, Suggestion: r.suggest(name)}, true
}

func syntaxProblems(err error) []Problem {
	if err == nil {
		return nil
	}
	var problems []Problem
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, e := range joined.Unwrap() {
		if s, ok := errors.AsType[*SyntaxError](e); ok {
			problems = append(problems, Problem{Rule: RuleSyntax, Column: s.Column, Message: s.Message, Suggestion: "write templates as in payment:{order_id}:{amount}:{currency}"})
		}
	}
	return problems
}

// StoredPrefix marks a value that was stored with the intent before the first delivery. A key
// may use a time or a nonce only in this form.
const StoredPrefix = "intent."

// nameRule refuses field names by the words in them.
type nameRule struct {
	rule       Rule
	words      []string // any of these, anywhere
	phrases    []string // words in a row
	alone      []string // as the only word
	endings    []string // as the last of several words
	message    string
	suggestion string
	stored     bool // allowed under StoredPrefix
}

func (r *nameRule) suggest(name string) string { return strings.ReplaceAll(r.suggestion, "NAME", name) }

// nameRules are tried in order; the first that matches applies.
var nameRules = []nameRule{
	{
		rule:       RuleAttempt,
		words:      []string{"attempt", "attempts", "retry", "retries", "try", "tries", "redelivered", "redelivery", "redeliveries", "resend", "resent"},
		phrases:    []string{"delivery count", "receive count", "delivery number"},
		message:    "a retry counts up, so it would count as a new call",
		suggestion: "leave it out: a retry is the same call",
	},
	{
		rule:       RuleMessage,
		words:      []string{"traceparent", "tracestate", "trace", "span", "correlation", "msgid", "messageid", "requestid"},
		phrases:    []string{"message id", "message uuid", "msg id", "msg uuid", "request id", "request uuid", "req id", "delivery id", "delivery tag", "envelope id", "packet id", "rpc id", "call id", "receipt handle"},
		message:    "it names one message, and the next delivery of the same call may be another message",
		suggestion: "use the id of what the message is about, such as {order_id} or {event_id}",
	},
	{
		rule:       RuleRandom,
		words:      []string{"nonce", "rand", "random", "salt", "entropy", "token", "jti", "csrf"},
		alone:      []string{"uuid", "guid", "ulid", "ksuid", "nanoid"},
		phrases:    []string{"new uuid", "uuid v4", "uuid v7", "uuid4", "uuid7", "generated id"},
		message:    "it is made anew for each delivery",
		suggestion: "use the id of the thing itself, which every delivery carries, or, if it was stored with the intent before the first delivery, say so: {" + StoredPrefix + "NAME}",
		stored:     true,
	},
	{
		rule:       RuleTime,
		words:      []string{"timestamp", "timestamps", "ts", "now", "today", "time", "datetime", "date", "epoch", "unix", "millis", "nanos", "clock", "iat", "nbf", "exp", "expiry", "expires"},
		endings:    []string{"at"},
		message:    "a time is another one in every delivery",
		suggestion: "leave it out, or, if it was stored with the intent before the first delivery, say so: {" + StoredPrefix + "NAME}",
		stored:     true,
	},
	{
		rule:       RuleDelivery,
		words:      []string{"hostname", "pid", "ip", "forwarded", "signature", "sig", "connection", "worker", "pod"},
		phrases:    []string{"remote addr", "remote address", "remote port", "user agent", "process id", "cf ray"},
		message:    "it tells how this delivery came, and the next may come another way",
		suggestion: "leave it out: only what the call means belongs in its key",
	},
}

func ruleAgainst(name string) (*nameRule, bool) {
	words := Words(name)
	joined := " " + strings.Join(words, " ") + " "
	for i := range nameRules {
		r := &nameRules[i]
		if r.stored && strings.HasPrefix(name, StoredPrefix) {
			continue
		}
		has := func(phrase string) bool { return strings.Contains(joined, " "+phrase+" ") }
		if slices.ContainsFunc(r.words, has) || slices.ContainsFunc(r.phrases, has) ||
			len(words) == 1 && slices.Contains(r.alone, words[0]) ||
			len(words) > 1 && slices.Contains(r.endings, words[len(words)-1]) {
			return r, true
		}
	}
	return nil, false
}

// identifies reports whether a field probably names one thing: it ends in a word for an
// identifier, and doesn't just number parts of a thing.
func identifies(name string) bool {
	words := Words(name)
	if slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"sequence", "seq", "version", "revision", "page", "line"}, w)
	}) {
		return false
	}
	return slices.Contains([]string{"id", "key", "number", "no", "ref", "reference", "uuid", "guid", "ulid", "sku", "upid", "slug", "handle", "iban", "email", "account", "user", "customer", "order", "tenant"}, words[len(words)-1])
}

// Words splits a name at "_", "-", "." and changes to upper case, and lower-cases the words. It
// knows only ASCII letters.
func Words(name string) []string {
	var words []string
	upper := func(i int) bool { return name[i] >= 'A' && name[i] <= 'Z' }
	var word []byte
	cut := func() {
		if len(word) > 0 {
			words, word = append(words, string(word)), nil
		}
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_' || c == '-' || c == '.':
			cut()
		case upper(i):
			// Both createdAt and HTTPDate are two words.
			if i > 0 && (!upper(i-1) || i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z') {
				cut()
			}
			word = append(word, c+'a'-'A')
		default:
			word = append(word, c)
		}
	}
	if cut(); len(words) == 0 {
		return []string{""}
	}
	return words
}
