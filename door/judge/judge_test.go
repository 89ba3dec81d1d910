package judge_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/rig/clause"
)

// proved is the table of docs/what-a-5xx-means.md, written down once more, so that a change of
// it is noticed.
func proved(status int, own, financial bool) judge.Verdict {
	switch status {
	case 101:
		return judge.Completed
	case 307, 308, 401, 407, 411, 412, 415, 417, 421, 423, 425, 426, 428, 429, 431, 511:
		return judge.Aborted
	case 402:
		if financial {
			return judge.Rejected
		}
		return judge.Aborted
	case 403:
		if financial {
			return judge.Unknown
		}
		return judge.Rejected
	case 400, 404, 405, 406, 409, 410, 413, 414, 416, 418, 422, 451:
		return judge.Rejected
	case 500, 501, 505, 506, 507, 508, 510:
		return judge.Failed
	case 502, 503, 504:
		if own && !financial {
			return judge.Failed
		}
		return judge.Unknown
	}
	if status >= 200 && status < 400 {
		return judge.Completed
	}
	return judge.Unknown
}

// TestTheTable: every status there is and some that there aren't, with and without
// Retry-After, of this process and of an upstream, where money moves and where it doesn't,
// with a credential that is signed anew and one that isn't, rolled back or not.
func TestTheTable(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	yes := []bool{false, true}
	for status := -1; status <= 1000; status++ {
		for _, own := range yes {
			for _, financial := range yes {
				want := proved(status, own, financial)
				for _, header := range []http.Header{nil, {"Retry-After": {"5"}}, {"Stripe-Should-Retry": {"true"}}} {
					rules := judge.Rules{Own: own, Financial: financial}
					if found := rules.Of(judge.Answer{Status: status, Header: header}); found.Verdict != want || found.Why() == "" || found.Declared() {
						t.Errorf("%d %v, own %t, financial %t: %s, want %s", status, header, own, financial, found.Verdict, want)
					}
				}
				anew := want
				if status == 403 && !financial {
					anew = judge.Aborted
				}
				rules := judge.Rules{Own: own, Financial: financial}
				if v := rules.Of(judge.Answer{Status: status, SignedAnew: true}).Verdict; v != anew {
					t.Errorf("%d, signed anew: %s, want %s", status, v, anew)
				}
				undone := want
				if want == judge.Unknown || own && status >= 502 && status <= 504 {
					undone = judge.Aborted
				}
				rules.RolledBack = true
				if v := rules.Of(judge.Answer{Status: status}).Verdict; v != undone && status >= 0 && status < 1000 {
					t.Errorf("%d, rolled back: %s, want %s", status, v, undone)
				}
			}
		}
	}
}

// TestRules are what else may be known of whoever answers.
func TestRules(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	stripe := judge.Rules{Contract: judge.Answers{Final: []string{"402"}}.Must(), RetryHeader: "Stripe-Should-Retry"}
	x402 := judge.Rules{Contract: judge.Answers{NotExecuted: []string{"402"}}.Must(), Financial: true}
	named := judge.Rules{Answers: judge.Answers{NotExecuted: []string{"504"}, Unknown: []string{"403", "402"}, Final: []string{"419"}}.Must(), Contract: stripe.Contract}
	for _, c := range []struct {
		name   string
		rules  judge.Rules
		status int
		header string
		want   judge.Verdict
	}{
		{"a declined card is final", stripe, 402, "", judge.Rejected},
		{"a failure", stripe, 500, "", judge.Failed},
		{"a failure that asks for a retry", stripe, 500, "Stripe-Should-Retry: true", judge.Aborted},
		{"a conflict that asks for one", stripe, 409, "Stripe-Should-Retry: true", judge.Aborted},
		{"a conflict", stripe, 409, "", judge.Rejected},
		{"a 503 that anybody may have given", stripe, 503, "", judge.Unknown},
		{"a 503 that asks for a retry", stripe, 503, "Stripe-Should-Retry: true", judge.Aborted},
		{"a 503 that doesn't", stripe, 503, "Stripe-Should-Retry: false", judge.Unknown},
		{"a gateway knows no contract", stripe, 504, "Stripe-Should-Retry: true", judge.Unknown},
		{"nor a timeout", stripe, 408, "Stripe-Should-Retry: true", judge.Unknown},
		{"what is paid for by x402", x402, 402, "", judge.Aborted},
		{"a name", named, 504, "", judge.Aborted},
		{"a name that proves nothing", named, 403, "", judge.Unknown},
		{"a name that is final", named, 419, "", judge.Rejected},
		{"a name comes before the contract", named, 402, "", judge.Unknown},
		{"the answer comes before a name", named, 504, "Semel-Effect: unknown", judge.Unknown},
		{"and before the table", named, 502, "Semel-Effect: None", judge.Aborted},
		{"a word that can't be read", named, 404, "Semel-Effect: perhaps", judge.Unknown},
		{"a redirect that nobody follows", judge.Rules{RedirectsUnclear: true}, 303, "", judge.Unknown},
		{"one that says not here", judge.Rules{RedirectsUnclear: true}, 307, "", judge.Aborted},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := http.Header{}
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				header.Set(name, value)
			}
			found := c.rules.Of(judge.Answer{Status: c.status, Header: header})
			if found.Verdict != c.want || found.Why() == "" {
				t.Errorf("%s is %s, want %s", found.Why(), found.Verdict, c.want)
			}
		})
	}
	two := http.Header{"Semel-Effect": {"none", "unknown"}}
	if v := stripe.Of(judge.Answer{Status: 500, Header: two}).Verdict; v != judge.Unknown {
		t.Errorf("two words that contradict are %s", v)
	}
	if v := judge.NoAnswer(errors.New("timeout")).Verdict; v != judge.Unknown {
		t.Errorf("an error of anybody is %s", v)
	}
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestConditions are answers that are told apart by more than their status.
func TestConditions(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	rules := judge.Rules{Answers: judge.Answers{
		NotExecuted: []string{"302 header:location=/sign-in*", "200 json:/errors/0/extensions/code=THROTTLED", "503"},
		Unknown:     []string{"200 json:/ok=false", "503 header:X-Cache=*MISS*", "302 header:Location=/sign-in?twice"},
		Final:       []string{"200 json:/code=17", "404 json:/why=a=b"},
	}.Must()}
	throttled := `{"errors": [{"extensions": {"code": "THROTTLED"}}]}`
	for name, c := range map[string]struct {
		status int
		header http.Header
		body   []byte
		want   judge.Verdict
		named  bool
	}{
		"a login":                              {302, http.Header{"Location": {"/sign-in?next=/orders"}}, nil, judge.Aborted, true},
		"unknown comes first":                  {302, http.Header{"Location": {"/sign-in?twice"}}, nil, judge.Unknown, true},
		"another redirect":                     {302, http.Header{"Location": {"/orders/1"}}, nil, judge.Completed, false},
		"no header":                            {302, nil, nil, judge.Completed, false},
		"throttled":                            {200, nil, []byte(throttled), judge.Aborted, true},
		"throttled and packed":                 {200, http.Header{"Content-Encoding": {"GZIP"}}, packed(t, throttled), judge.Aborted, true},
		"packed in another way":                {200, http.Header{"Content-Encoding": {"br"}}, []byte(throttled), judge.Completed, false},
		"not packed at all":                    {200, http.Header{"Content-Encoding": {"gzip"}}, []byte(throttled), judge.Completed, false},
		"a bomb":                               {200, http.Header{"Content-Encoding": {"gzip"}}, packed(t, `{"ok":false,"a":"`+strings.Repeat("a", judge.MaxBody)+`"}`), judge.Completed, false},
		"a boolean":                            {200, nil, []byte(`{"ok":false}`), judge.Unknown, true},
		"the other boolean":                    {200, nil, []byte(`{"ok":true}`), judge.Completed, false},
		"a number":                             {200, nil, []byte(`{"code":17}`), judge.Rejected, true},
		"an equals sign in the value":          {404, nil, []byte(`{"why":"a=b"}`), judge.Rejected, true},
		"a list":                               {200, nil, []byte(`{"code":[17]}`), judge.Completed, false},
		"not JSON":                             {200, nil, []byte(`code=17`), judge.Completed, false},
		"a name twice":                         {200, nil, []byte(`{"code":17,"code":17}`), judge.Completed, false},
		"half a body":                          {200, nil, []byte(throttled[:20]), judge.Completed, false},
		"no body":                              {200, nil, nil, judge.Completed, false},
		"as large as can be":                   {200, nil, []byte(`{"code":17` + strings.Repeat(" ", judge.MaxBody-11) + `}`), judge.Rejected, true},
		"too large":                            {200, nil, []byte(`{"code":17` + strings.Repeat(" ", judge.MaxBody-10) + `}`), judge.Completed, false},
		"without a condition":                  {503, nil, nil, judge.Aborted, true},
		"a condition comes before its absence": {503, http.Header{"X-Cache": {"HIT", "cp-1 MISS 0"}}, nil, judge.Unknown, true},
		"another status":                       {201, nil, []byte(throttled), judge.Completed, false},
	} {
		found := rules.Of(judge.Answer{Status: c.status, Header: c.header, Body: c.body})
		if found.Verdict != c.want || found.Named != c.named || found.Declared() != c.named || found.Why() == "" {
			t.Errorf("%s: %s, named %t; want %s", name, found.Verdict, found.Named, c.want)
		}
	}
	for status, want := range map[int]bool{200: true, 404: true, 302: false, 503: false} {
		if rules.Reads(status) != want {
			t.Errorf("the body of a %d: %t", status, !want)
		}
	}
	if got := rules.Forbidden(); !slices.Equal(got, []string{"Semel-Effect", "Retry-After", "X-Cache", "Location"}) {
		t.Errorf("callers may not send %q", got)
	}
	if got := (&judge.Rules{RetryHeader: "Stripe-Should-Retry"}).Forbidden(); !slices.Equal(got, []string{"Semel-Effect", "Retry-After", "Stripe-Should-Retry"}) {
		t.Errorf("callers may not send %q", got)
	}
}

// TestWrongAnswers are refused with the list where they stand.
func TestWrongAnswers(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "doesn't begin with a status",
		"ok":                      "doesn't begin with a status",
		"199":                     "doesn't begin with a status",
		"1000":                    "doesn't begin with a status",
		"200":                     "says that the work was done",
		"204 ":                    "says that the work was done",
		"302 header:Location":     "no value after its selector",
		"302 header:Location=":    "no value after its selector",
		"302 Location=/x":         "doesn't say where the value is",
		"200 query:a=b":           "doesn't say where the value is",
		"200 json:code=THROTTLED": "doesn't begin with a slash",
		"302 header:a b=c":        "doesn't name a header",
		"503\t header:X=y":        "doesn't begin with a status",
	} {
		wrong := judge.Answers{Unknown: []string{"500", text}}.Check()
		if len(wrong) != 1 || wrong[0].List != "unknown" || !strings.Contains(wrong[0].Why, want) {
			t.Errorf("%q: %v", text, wrong)
		}
	}
	twice := judge.Answers{NotExecuted: []string{"503"}, Final: []string{" 503"}}
	if _, err := twice.Parse(); err == nil || !strings.Contains(err.Error(), "not_executed[0]: \"503\" is there twice") {
		t.Errorf("a status in two lists: %v", err)
	}
	if named, err := (judge.Answers{}).Parse(); named != nil || err != nil {
		t.Errorf("nothing is %v, %v", named, err)
	}
}

// TestGRPC: a code of gRPC has the row of a status, in the head of an answer and in its
// trailers, of an upstream and of this process.
func TestGRPC(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	rejected, failed, aborted, unknown := judge.Rejected, judge.Failed, judge.Aborted, judge.Unknown
	for code, want := range map[uint32]struct{ upstream, own, money judge.Verdict }{
		0:  {judge.Completed, judge.Completed, judge.Completed},
		1:  {unknown, unknown, unknown},
		2:  {unknown, failed, unknown}, // UNKNOWN
		3:  {rejected, rejected, rejected},
		4:  {unknown, failed, unknown}, // DEADLINE_EXCEEDED
		5:  {rejected, rejected, rejected},
		6:  {rejected, rejected, rejected},
		7:  {rejected, rejected, unknown}, // PERMISSION_DENIED
		8:  {unknown, failed, unknown},    // RESOURCE_EXHAUSTED
		9:  {rejected, rejected, rejected},
		10: {rejected, rejected, rejected},
		11: {rejected, rejected, rejected},
		12: {failed, failed, failed},
		13: {failed, failed, failed},
		14: {unknown, failed, unknown}, // UNAVAILABLE
		15: {failed, failed, failed},
		16: {aborted, aborted, aborted},
		17: {unknown, failed, unknown},
		99: {unknown, failed, unknown},
	} {
		for _, c := range []struct {
			rules judge.Rules
			want  judge.Verdict
		}{{judge.Rules{}, want.upstream}, {judge.Rules{Own: true}, want.own}, {judge.Rules{Own: true, Financial: true}, want.money}} {
			if found := c.rules.GRPC(code, nil); found.Verdict != c.want || found.Code == "" {
				t.Errorf("%d, own %t, financial %t: %s, want %s", code, c.rules.Own, c.rules.Financial, found.Verdict, c.want)
			}
			for _, name := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
				for _, media := range []string{"application/grpc", "application/grpc+proto; x=y"} {
					header := http.Header{"Content-Type": {media}, name: {fmt.Sprint(code)}}
					if found := c.rules.Of(judge.Answer{Status: 200, Header: header}); found.Verdict != c.want {
						t.Errorf("%v, own %t, financial %t: %s, want %s", header, c.rules.Own, c.rules.Financial, found.Verdict, c.want)
					}
				}
			}
		}
	}
	var program judge.Rules
	for name, c := range map[string]struct {
		status int
		header http.Header
		want   judge.Verdict
	}{
		"gRPC without a code":        {200, http.Header{"Content-Type": {"application/grpc"}}, unknown},
		"a code that is none":        {200, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"fine"}}, unknown},
		"two codes":                  {200, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"0", "14"}}, unknown},
		"a gateway that speaks HTTP": {503, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"0"}}, unknown},
		"another protocol":           {200, http.Header{"Content-Type": {"text/plain"}, "Grpc-Status": {"14"}}, judge.Completed},
		"Semel's own word":           {200, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"14"}, "Semel-Effect": {"none"}}, aborted},
	} {
		if v := program.Of(judge.Answer{Status: c.status, Header: c.header}).Verdict; v != c.want {
			t.Errorf("%s: %s, want %s", name, v, c.want)
		}
	}
}

// TestMCP: errors of JSON-RPC in MCP share rows with statuses; one that nobody knows says that the
// server failed.
func TestMCP(t *testing.T) {
	for code, want := range map[int]judge.Verdict{
		-32700: judge.Rejected, -32602: judge.Rejected, -32601: judge.Rejected, -32603: judge.Failed, -32000: judge.Failed, -32002: judge.Failed,
		-32020: judge.Aborted, -32021: judge.Aborted, -32022: judge.Aborted, -32042: judge.Aborted, 7: judge.Failed,
	} {
		if found := (&judge.Rules{Financial: true}).MCP(code, nil); found.Verdict != want {
			t.Errorf("%d: %s", code, found.Verdict)
		}
	}
	if v := (&judge.Rules{}).MCP(-32020, http.Header{"Semel-Effect": {"unknown"}}).Verdict; v != judge.Unknown {
		t.Errorf("a word about the effect: %s", v)
	}
}

// TestA2A: an error of an agent has the row of the status that belongs to its code.
func TestA2A(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	for code, status := range map[int]int{
		-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32603: 500, -32000: 500, -32001: 404, -32002: 409, -32003: 400, -32004: 400,
		-32005: 415, -32006: 502, -32007: 400, -32008: 400, -32009: 400, -31401: 401, -31403: 403, 0: 500, 404: 500,
	} {
		for _, rules := range []judge.Rules{{}, {Own: true}, {Financial: true}, {Own: true, Financial: true}} {
			if found := rules.A2A(code, nil); found.Verdict != proved(status, rules.Own, rules.Financial) || !strings.Contains(found.Why(), found.Code) {
				t.Errorf("%s: %s, own %t, financial %t", found.Why(), found.Verdict, rules.Own, rules.Financial)
			}
		}
	}
	if v := (&judge.Rules{}).A2A(-32602, http.Header{"Semel-Effect": {"unknown"}}).Verdict; v != judge.Unknown {
		t.Errorf("the agent's own word is %s", v)
	}
}

// TestForrst: an error of Forrst has the row of its status, or of another.
func TestForrst(t *testing.T) {
	clause.Proves(t, "IDS-V.2", "FOR-FAIL.1")
	for code, c := range map[string]struct {
		status        int
		upstream, own judge.Verdict
	}{
		"UNAVAILABLE":            {503, judge.Unknown, judge.Failed},
		"SERVER_MAINTENANCE":     {503, judge.Unknown, judge.Failed},
		"DEPENDENCY_ERROR":       {502, judge.Unknown, judge.Failed},
		"DEADLINE_EXCEEDED":      {408, judge.Unknown, judge.Failed},
		"FUNCTION_NOT_FOUND":     {404, judge.Aborted, judge.Aborted},
		"INVALID_ARGUMENTS":      {400, judge.Rejected, judge.Rejected},
		"IDEMPOTENCY_PROCESSING": {409, judge.Unknown, judge.Unknown},
		"INTERNAL_ERROR":         {500, judge.Failed, judge.Failed},
		"OF_ITS_OWN":             {599, judge.Unknown, judge.Unknown},
	} {
		if found := (&judge.Rules{}).Forrst(code, c.status, http.Header{"Retry-After": {"1"}}); found.Verdict != c.upstream || found.Code != code {
			t.Errorf("%s of an upstream: %s, want %s", code, found.Verdict, c.upstream)
		}
		if found := (&judge.Rules{Own: true}).Forrst(code, c.status, nil); found.Verdict != c.own {
			t.Errorf("%s of this process: %s, want %s", code, found.Verdict, c.own)
		}
	}
}

// TestWorst: of several errors about one call the one counts that proves least.
func TestWorst(t *testing.T) {
	order := []judge.Verdict{judge.Unknown, judge.Failed, judge.Aborted, judge.Rejected, judge.Completed}
	for i, a := range order {
		for k, b := range order {
			if got := judge.Worst(judge.Finding{Verdict: a}, judge.Finding{Verdict: b}).Verdict; got != order[min(i, k)] {
				t.Errorf("of %s and %s counts %s", a, b, got)
			}
		}
	}
}
