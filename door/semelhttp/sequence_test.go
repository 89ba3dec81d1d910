package semelhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

// TestSequence sends numbered updates of one key.
func TestSequence(t *testing.T) {
	clause.Proves(t, "MAP-SESS.2", "MAP-SESS.4")
	for _, from := range []string{"header:X-Sequence", "json:/sequence"} {
		t.Run(from, func(t *testing.T) {
			s := newSelecting(t, semelhttp.Route{Operation: semel.Operation{Sequenced: true}, Sequence: from})
			send := func(n string) (int, string) {
				return s.send("", inJSON, `{"sequence":`+n+`}`, "Idempotency-Key: session_update:s1:save_cart", "X-Sequence: "+n)
			}
			for _, step := range []struct {
				n      string
				status int
				body   string
			}{
				{"1", 200, "1:"}, {"3", 200, "2:"}, {"3", 200, "2:"}, {"1", 200, "1:"},
				{"2", 409, `"last_sequence":3`}, {"18446744073709551615", 200, "3:"}, {"4", 409, `"last_sequence":18446744073709551615`},
			} {
				if status, body := send(step.n); status != step.status || !strings.Contains(body, step.body) {
					t.Errorf("number %s: %d, %s; want %d, %s", step.n, status, body, step.status, step.body)
				}
			}
			for _, n := range []string{"0", "-1", "18446744073709551616", "1e99", "1.5"} {
				if status, body := send(n); status != 400 || !strings.Contains(body, "invalid_call") || !strings.Contains(body, from) {
					t.Errorf("number %s: %d, %s", n, status, body)
				}
			}
			if s.runs != 3 {
				t.Errorf("%d updates ran", s.runs)
			}
		})
	}
}

// TestSequenceGap: a number that comes too early is told which one comes next.
func TestSequenceGap(t *testing.T) {
	s := newSelecting(t, semelhttp.Route{Operation: semel.Operation{Sequenced: true, Gapless: true}, Sequence: "header:X-Sequence"})
	send := func(n string) (int, string) {
		return s.send("", inJSON, `{}`, "Idempotency-Key: k", "X-Sequence: "+n)
	}
	for _, step := range []struct {
		n      string
		status int
		body   string
	}{{"2", 409, `"expected_sequence":1`}, {"1", 200, "1:"}, {"3", 409, `"code":"sequence_gap"`}, {"3", 409, `"expected_sequence":2`}, {"2", 200, "2:"}, {"3", 200, "3:"}} {
		if status, body := send(step.n); status != step.status || !strings.Contains(body, step.body) {
			t.Errorf("number %s: %d, %s; want %d, %s", step.n, status, body, step.status, step.body)
		}
	}
}

// TestSequenceRefuses: what isn't one plain number gets 400, and nothing runs.
func TestSequenceRefuses(t *testing.T) {
	s := newSelecting(t, semelhttp.Route{Operation: semel.Operation{Sequenced: true}, Sequence: "header:X-Sequence", Profile: semelhttp.IETF()})
	for _, headers := range [][]string{
		{}, {"X-Sequence: "}, {"X-Sequence: 1", "X-Sequence: 2"}, {"X-Sequence: 1", "X-Sequence: 1"}, {"X-Sequence: +1"}, {"X-Sequence: -0"}, {"X-Sequence: 01"},
		{"X-Sequence: 1e3"}, {"X-Sequence: 0x1"}, {"X-Sequence: 1_000"}, {"X-Sequence: ١"}, {"X-Sequence: " + strings.Repeat("9", 1000)}, {"X-Sequence: 1, 2"},
	} {
		status, body := s.send("", inJSON, `{}`, append(headers, "Idempotency-Key: k")...)
		if status != 400 || !strings.Contains(body, "The number of the call in header:X-Sequence") {
			t.Errorf("%q: %d, %s", headers, status, body)
		}
	}
	s = newSelecting(t, semelhttp.Route{Operation: semel.Operation{Sequenced: true}, Sequence: "json:/sequence"})
	for _, body := range []string{`{}`, `{"sequence":null}`, `{"sequence":[1]}`, `{"sequence":1,"sequence":1}`, `{"sequence":"01"}`, `{"Sequence":1}`, `{`, ``} {
		if status, answer := s.send("", inJSON, body, "Idempotency-Key: k"); status != 400 {
			t.Errorf("%s: %d, %s", body, status, answer)
		}
	}
	if s.runs != 0 {
		t.Errorf("%d updates ran", s.runs)
	}
}

// TestSequenceAndOperationGoTogether: a route without numbers can't run a sequenced
// operation, nor the reverse.
func TestSequenceAndOperationGoTogether(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, rt := range []semelhttp.Route{
		{Operation: semel.Operation{Sequenced: true}},
		{Sequence: "header:X-Sequence"},
		{Operation: semel.Operation{Sequenced: true}, Sequence: "X-Sequence"},
	} {
		rt.Operation.Name = fmt.Sprint("op", i)
		if _, err := guard.Handle(rt, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "Sequence") {
			t.Errorf("route %d: %v", i, err)
		}
	}
}
