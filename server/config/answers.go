package config

import (
	"fmt"

	"github.com/semelhq/semel/transport/judge"
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

// renamed are settings that had other names, and what to write in place of them.
var renamed = map[string]string{
	"not_executed": "write answers: {not_executed: [...]}",
}

// answers checks what the answers of a section's upstream mean.
func (v *validator) answers(at string, a Answers) {
	if v.faultyBelow(at + ".answers") {
		return
	}
	for _, wrong := range judge.Answers(a).Check() {
		v.bad(fmt.Sprintf("%s.answers.%s[%d]", at, wrong.List, wrong.At), "", "%s", wrong.Why)
	}
}

// allAnswers checks the answers of all upstreams.
func (v *validator) allAnswers() {
	for i := range v.c.Routes {
		v.answers(fmt.Sprintf("routes[%d]", i), v.c.Routes[i].Answers)
	}
	for i := range v.c.Forrst {
		v.answers(fmt.Sprintf("forrst[%d]", i), v.c.Forrst[i].Answers)
	}
	for i := range v.c.A2A {
		v.answers(fmt.Sprintf("a2a[%d]", i), v.c.A2A[i].Answers)
	}
	for i := range v.c.Webhooks {
		v.answers(fmt.Sprintf("webhooks[%d]", i), v.c.Webhooks[i].Answers)
	}
}
