package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
)

// TestRecordsSettleAll gets out of a storm of held calls with one command.
func TestRecordsSettleAll(t *testing.T) {
	store := recordsDir(t)
	held := func() int {
		_, out, _ := records(t, store, "list", "--json", "held")
		return strings.Count(out, "\n")
	}
	before := held()
	if before < 2 {
		t.Fatalf("%d are held", before)
	}
	all := []string{"settle", "--all", "--outcome", "aborted", "--reason", "the gateway was down"}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"without a reason":   {[]string{"settle", "--all", "--outcome", "aborted", "--yes"}, ExitUsage, "--reason is needed"},
		"nobody to ask":      {all, ExitUsage, "--yes"},
		"with one's name":    {append(all, "--key", "held", "--yes"), ExitUsage, "--all takes qualifiers"},
		"a wrong qualifier":  {append(all, "sort:of", "--yes"), ExitUsage, "no such qualifier"},
		"either of two":      {append(all, "operation:none", "OR", "operation:neither", "--yes"), ExitOK, "0 records are changed"},
		"a dry run":          {append(all, "--dry-run"), ExitOK, "records would be"},
		"where nothing is":   {append(all, "operation:none", "--yes"), ExitOK, "0 records are changed"},
		"of the release too": {[]string{"release", "--all", "operation:none", "--reason", "r", "--yes"}, ExitOK, "0 records are changed"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := records(t, store, c.args...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, %s%s", code, out, errs)
			}
			if n := held(); n != before {
				t.Errorf("%d are held, of %d", n, before)
			}
		})
	}
	// One that can't be changed doesn't keep the others from it.
	if code, _, errs := records(t, store, append(all, "--yes")...); code != ExitConflict || strings.Count(errs, "is not registered here") != before {
		t.Errorf("exit %d: %s", code, errs)
	}
	code, out, errs := records(t, store, append(all, "--yes", "--json", "--force")...)
	if code != ExitOK || strings.Count(out, `"action":"settle","done":true`) != before || held() != 0 {
		t.Errorf("exit %d, %d are held: %s%s", code, held(), out, errs)
	}
}

// settling are records that a function settles: it may call the change, which is the real one.
type settling struct {
	client.Records
	settle func(change func() (semel.Record, error)) (semel.Record, error)
}

func (s settling) Settle(ctx context.Context, id semel.ID, to semel.Settlement, reason string) (semel.Record, error) {
	return s.settle(func() (semel.Record, error) { return s.Records.Settle(ctx, id, to, reason) })
}

// TestRecordsSettleAllWithoutAnAnswer: what may have been changed is not told as refused, and after
// an interrupt nothing more is changed.
func TestRecordsSettleAllWithoutAnAnswer(t *testing.T) {
	refused := &semel.Error{Code: semel.CodeIllegalTransition, Message: "somebody was faster"}
	lost := &semel.Error{Code: semel.CodeUnknown, Message: "the service did not answer"}
	stranger := &semel.Error{Code: semel.CodeUnknown, Err: &client.AnswerError{Status: 502, Reason: "it is not a problem document"}}
	for _, test := range []struct {
		name      string
		first     error // of the first of two held records; nil: it is changed
		second    error
		interrupt bool // during the first change
		code      int
		says      string // at the end
	}{
		{"both are refused", refused, refused, false, ExitConflict, "2 records could not be changed"},
		{"one is refused", nil, refused, false, ExitConflict, "1 records could not be changed"},
		{"one answer is lost", lost, nil, false, ExitUnavailable, "nobody knows whether 1 records were changed: look with 'semel why' before you do it again"},
		{"one is lost, and one refused", lost, refused, false, ExitUnavailable, "nobody knows whether 1 records were changed: look with 'semel why' before you do it again; 1 could not be changed"},
		{"a proxy answers for the service", stranger, lost, false, ExitUnavailable, "nobody knows whether 2 records were changed: look with 'semel why' before you do it again"},
		{"interrupted after a change", nil, nil, true, ExitCheck, "context canceled"},
		{"interrupted after a refusal", refused, nil, true, ExitCheck, "context canceled"},
		{"interrupted before an answer", lost, nil, true, ExitUnavailable, "interrupted, and nobody knows whether 1 records were changed: look with 'semel why' before you do it again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := inMemory(t)
			populate(t, e)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ends, changes := []error{test.first, test.second}, 0
			recs := settling{e, func(change func() (rec semel.Record, err error)) (rec semel.Record, err error) {
				if err = ends[changes]; err == nil {
					rec, err = change()
				}
				if changes++; test.interrupt {
					cancel()
				}
				return rec, err
			}}
			var out bytes.Buffer
			errs, err := inProcess(t, ctx, recs, strings.NewReader(""), &out, "settle", "--all", "--outcome", "aborted", "--reason", "r", "--yes")
			if err == nil || exitOf(err) != test.code || !strings.HasSuffix(err.Error(), test.says) {
				t.Errorf("%v, %s%s", err, &out, errs)
			}
			if goesOn := changes == 2; goesOn == test.interrupt {
				t.Errorf("it went through %d records", changes)
			}
			// For such an error, the command line says no more than that it was interrupted.
			if hidden := errors.Is(err, context.Canceled); hidden != (test.code == ExitCheck) {
				t.Errorf("%v", err)
			}
		})
	}
}
