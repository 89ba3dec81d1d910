package judge_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/clause"
	"github.com/semelhq/semel/transport/judge"
)

// TestRules are what else may be known of whoever answers. What the table says alone is
// tested at the doors.
func TestRules(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	stripe := judge.Rules{Contract: []int{400, 409}, Final: []int{402}, RetryHeader: "Stripe-Should-Retry"}
	program := judge.Rules{}
	for _, c := range []struct {
		name   string
		rules  judge.Rules
		status int
		header string
		want   judge.Verdict
	}{
		{"the contract says that nothing was done", stripe, 409, "", judge.Aborted},
		{"unless the answer says otherwise", stripe, 409, "Stripe-Should-Retry: false", judge.Rejected},
		{"a declined card is final", stripe, 402, "", judge.Rejected},
		{"a failure", stripe, 500, "", judge.Failed},
		{"a failure that asks for a retry", stripe, 500, "Stripe-Should-Retry: true", judge.Aborted},
		{"a 503 that anybody may have given", stripe, 503, "", judge.Unknown},
		{"a 503 that asks for a retry", stripe, 503, "Stripe-Should-Retry: true", judge.Aborted},
		{"a 503 of the program", stripe, 503, "Stripe-Should-Retry: false", judge.Failed},
		{"a gateway knows no contract", stripe, 504, "Stripe-Should-Retry: true", judge.Unknown},
		{"nor a timeout", stripe, 408, "Stripe-Should-Retry: true", judge.Unknown},
		{"a name", judge.Rules{NotExecuted: []int{504}}, 504, "", judge.Aborted},
		{"the answer is stronger than a name", judge.Rules{NotExecuted: []int{504}}, 504, "Semel-Effect: unknown", judge.Unknown},
		{"a 503 that says when", program, 503, "Retry-After: 1", judge.Aborted},
		{"its own 503", judge.Rules{Own: true}, 503, "", judge.Aborted},
		{"its own 504", judge.Rules{Own: true}, 504, "", judge.Unknown},
		{"another protocol", program, 101, "", judge.Completed},
		{"no status at all", program, 0, "", judge.Unknown},
		{"no status that there is", program, 600, "", judge.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := http.Header{}
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				header.Set(name, value)
			}
			found := c.rules.Of(c.status, header)
			if found.Verdict != c.want || found.Why() == "" {
				t.Errorf("%s is %s, want %s", found.Why(), found.Verdict, c.want)
			}
		})
	}
	two := http.Header{"Semel-Effect": {"none", "unknown"}}
	if v := program.Of(500, two).Verdict; v != judge.Unknown {
		t.Errorf("two words that contradict are %s", v)
	}
	if v := judge.NoAnswer(errors.New("timeout")).Verdict; v != judge.Unknown {
		t.Errorf("an error of anybody is %s", v)
	}
}

// TestA2A: an error of an agent is judged by the status that belongs to its code.
func TestA2A(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	var program judge.Rules
	for code, want := range map[int]judge.Verdict{
		-32700: judge.Rejected, -32600: judge.Rejected, -32601: judge.Rejected, -32602: judge.Rejected, -32603: judge.Failed,
		-32000: judge.Failed, -32001: judge.Rejected, -32002: judge.Rejected, -32003: judge.Rejected, -32004: judge.Rejected, -32005: judge.Rejected,
		-32006: judge.Unknown, -32007: judge.Rejected, -32008: judge.Rejected, -32009: judge.Rejected, -31401: judge.Aborted, -31403: judge.Aborted,
		0: judge.Failed, 404: judge.Failed,
	} {
		if found := program.A2A(code, nil); found.Verdict != want || !strings.Contains(found.Why(), found.Code) {
			t.Errorf("%s: %s, want %s", found.Why(), found.Verdict, want)
		}
	}
	if v := program.A2A(-32602, http.Header{"Semel-Effect": {"unknown"}}).Verdict; v != judge.Unknown {
		t.Errorf("the agent's own word is %s", v)
	}
}
