package keytemplate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

func TestLint(t *testing.T) {
	clause.Proves(t, "IDS-VII.4")
	for _, test := range []struct {
		template string
		want     string // rule:column of each problem
	}{
		{"payment:{order_id}:{amount}:{currency}", ""},
		{"charge:{tenant}:{orderId}:{intent.due_date}", ""},
		{"webhook:{source}:{event_id}", ""},
		{"invoice:{invoice_number}", ""},
		{"order:{order_uuid}", ""},
		{"profile:{user}:{timezone}", ""},

		{"payment:{order_id}:{timestamp}", "time:20"},
		{"payment:{order_id}:{now}", "time:20"},
		{"payment:{order_id}:{ts}", "time:20"},
		{"payment:{order_id}:{date}", "time:20"},
		{"payment:{order_id}:{createdAt}", "time:20"},
		{"payment:{order_id}:{sent_at}", "time:20"},
		{"payment:{order_id}:{header.Date}", "time:20"},
		{"payment:{order_id}:{unix_time}", "time:20"},
		{"session:{userId}:{timestamp}:{nonce}", "time:18 random:30"},
		{"order:{user_id}:{uuid}", "random:17"},
		{"order:{user_id}:{rand}", "random:17"},
		{"order:{user_id}:{random_token}", "random:17"},
		{"order:{user_id}:{csrfToken}", "random:17"},
		{"order:{user_id}:{intent.nonce}", ""},
		{"order:{user_id}:{intent.attempt}", "attempt:17"},
		{"event:{message_id}", "scope:1 message:7"},
		{"event:{tenant}:{messageId}", "message:16"},
		{"event:{tenant}:{X-Request-Id}", "message:16"},
		{"event:{tenant}:{trace_id}", "message:16"},
		{"event:{tenant}:{header.traceparent}", "message:16"},
		{"event:{tenant}:{correlation_id}", "message:16"},
		{"event:{tenant}:{delivery_id}", "message:16"},
		{"call:{user_id}:{attempt}", "attempt:16"},
		{"call:{user_id}:{retryCount}", "attempt:16"},
		{"call:{user_id}:{delivery_count}", "attempt:16"},
		{"call:{user_id}:{attempted_at}", "time:16"},
		{"call:{user_id}:{remote_addr}", "delivery:16"},
		{"call:{user_id}:{header.User-Agent}", "delivery:16"},
		{"call:{user_id}:{client_ip}", "delivery:16"},
		{"call:{user_id}:{header.Stripe-Signature}", "delivery:16"},

		{"payment:{amount}:{currency}", "scope:1"},
		{"update:{sequence_number}", "scope:1"},
		{"payments", "constant:1"},
		{"", "empty:1"},
		{"   ", "empty:1"},
		{"order:{order_id}{user_id}", "syntax:17"},
		{"order:{order_id", "syntax:7"},
		{"{now}{uuid}:%", "scope:1 time:1 syntax:6 random:6 syntax:13"},
	} {
		t.Run("problems in "+orEmpty(test.template), func(t *testing.T) {
			var got []string
			for _, p := range Lint(test.template) {
				got = append(got, fmt.Sprintf("%s:%d", p.Rule, p.Column))
				if p.Message == "" || p.Suggestion == "" || strings.Contains(p.Suggestion, "NAME") {
					t.Errorf("the problem %+v does not say what to do", p)
				}
			}
			want := strings.Fields(test.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("problems = %v, want %v", got, want)
			}
		})
	}
	t.Run("problems come in order of position", func(t *testing.T) {
		problems := Lint("{now}:{uuid}:{attempt}")
		if !slices.IsSortedFunc(problems, func(a, b Problem) int { return a.Column - b.Column }) || len(problems) != 4 {
			t.Errorf("problems = %+v", problems)
		}
	})
}

func orEmpty(s string) string {
	if strings.TrimSpace(s) == "" {
		return fmt.Sprintf("%d spaces", len(s))
	}
	return s
}

func TestWordsOf(t *testing.T) {
	for name, want := range map[string]string{
		"createdAt": "created at", "HTTPDate": "http date", "order_id": "order id", "X-Request-Id": "x request id",
		"intent.due_date": "intent due date", "userID": "user id", "a": "a", "uuid4": "uuid4", "": "",
	} {
		if got := strings.Join(Words(name), " "); got != want {
			t.Errorf("Words(%q) = %q, want %q", name, got, want)
		}
	}
}
