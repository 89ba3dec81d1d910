package config

import (
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
)

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
	return append(list, c.eventMeanings(status)...)
}

func meaning(setting, match string, status int, rules judge.Rules, next string) (Meaning, judge.Verdict) {
	v := rules.Of(judge.Answer{Status: status}).Verdict
	return Meaning{Setting: setting, Match: match, Status: status, Proves: v.String(), Next: next, Conditions: rules.Conditions(status)}, v
}
