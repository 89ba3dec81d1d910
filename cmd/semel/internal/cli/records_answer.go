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

// answerLine is what --json prints of a recorded HTTP answer.
type answerLine struct {
	Status  int         `json:"status"`
	Headers http.Header `json:"headers,omitempty"`
	// Body is the body if it is text; otherwise BodyBytes has it in base64.
	Body      string `json:"body,omitempty"`
	BodyBytes string `json:"body_base64,omitempty"`
}

// answerOf is nil if the record has no HTTP answer.
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

// printAnswer shows people the attributes of a call, and what duplicates get.
func printAnswer(l labels, rec *semel.Record) {
	for _, name := range slices.Sorted(maps.Keys(rec.Attributes)) {
		l.line("attribute", "%s: %s", printable(name), printable(rec.Attributes[name]))
	}
	a, ok := semelhttp.ParseAnswer(rec.Result)
	if !ok {
		if !rec.Result.IsZero() {
			l.line("result", "%s", brief(rec.Result))
		}
		return
	}
	l.line("answer", "%s", strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))))
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		for _, value := range a.Header[name] {
			l.line("header", "%s: %s", printable(name), printable(value))
		}
	}
	l.line("body", "%s", brief(semel.Result{Data: a.Body, Tombstone: rec.Result.Tombstone}))
}

// answer is the HTTP answer that the flags describe.
func (f *settleFlags) answer(outcome store.Disposition, body []byte) (semel.Result, error) {
	if !api.FitsOutcome(f.status, outcome) {
		return semel.Result{}, usage("--status %d doesn't go with --outcome %s: completed takes a status below 400, rejected below 500, failed 400 or more", f.status, f.outcome)
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

// checkResult refuses a result that duplicates could never get.
func (f *settleFlags) checkResult(rec *semel.Record, s *semel.Settlement, routed bool) error {
	// A service doesn't show its policies, and checks the result itself.
	if most := rec.Policy.MaxResult; most > 0 && len(s.Result.Data) > most {
		return usage("the result has %d bytes and its operation keeps at most %d, so duplicates would get none of it", len(s.Result.Data), most)
	}
	if f.status == 0 && !s.Result.IsZero() && !s.Force && (routed || semelhttp.Marked(rec)) {
		return usage("the call was an HTTP request, so duplicates get an HTTP answer: give --status, and --header 'NAME: VALUE' for each header; --result is the body")
	}
	return nil
}
