package cli

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store"
)

// answerLine is what --json prints of an HTTP answer that a record keeps.
type answerLine struct {
	Status  int         `json:"status"`
	Headers http.Header `json:"headers,omitempty"`
	// Body is the body if it is text; otherwise BodyBytes has it in base64.
	Body      string `json:"body,omitempty"`
	BodyBytes string `json:"body_base64,omitempty"`
}

// answerOf is nil if the record keeps no HTTP answer.
func answerOf(rec *semel.Record) *answerLine {
	a, ok := semelhttp.ParseAnswer(rec.Result)
	if !ok {
		return nil
	}
	line := &answerLine{Status: a.Status, Headers: a.Header}
	if utf8.Valid(a.Body) {
		line.Body = string(a.Body)
	} else {
		line.BodyBytes = base64.StdEncoding.EncodeToString(a.Body)
	}
	return line
}

// printAnswer shows what duplicates get to people.
func printAnswer(line func(name, format string, args ...any), rec *semel.Record) {
	a, ok := semelhttp.ParseAnswer(rec.Result)
	switch {
	case ok:
	case rec.Result.IsZero():
		return
	default:
		line("result", "%s", brief(rec.Result))
		return
	}
	line("answer", "%s", strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))))
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		for _, value := range a.Header[name] {
			line("header", "%s: %s", printable(name), printable(value))
		}
	}
	line("body", "%s", brief(semel.Result{Data: a.Body, Tombstone: rec.Result.Tombstone}))
}

// answer is the HTTP answer that the flags describe.
func (f *settleFlags) answer(outcome store.Disposition, body []byte) (semel.Result, error) {
	if !api.FitsOutcome(f.status, outcome) {
		return semel.Result{}, usage("--status %d does not go with --outcome %q: completed has a status below 400, rejected one below 500, failed one of at least 400", f.status, f.outcome)
	}
	a := semelhttp.Answer{Status: f.status, Header: http.Header{}, Body: body}
	for _, text := range f.headers {
		name, value, ok := strings.Cut(text, ":")
		if !ok {
			return semel.Result{}, usage("--header is %q, not 'NAME: VALUE'", text)
		}
		a.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	res, err := a.Result()
	if err != nil {
		return res, usage("--status and --header: %w", err)
	}
	return res, nil
}

// checkResult refuses a result that duplicates wouldn't get.
func (f *settleFlags) checkResult(rec *semel.Record, s *semel.Settlement, routed bool) error {
	// A service doesn't show its policies, and checks the result itself.
	if most := rec.Policy.MaxResult; most > 0 && len(s.Result.Data) > most {
		return usage("the result has %d bytes and its operation keeps %d, so duplicates would get nothing of it", len(s.Result.Data), most)
	}
	if f.status == 0 && !s.Result.IsZero() && !s.Force && (routed || semelhttp.Marked(rec)) {
		return usage("the call came as an HTTP request, so duplicates get an HTTP answer: give --status, and --header 'NAME: VALUE' for each header; --result is its body")
	}
	return nil
}
