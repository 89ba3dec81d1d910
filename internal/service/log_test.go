package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// A lasting problem is logged once, and again from time to time; its end is logged once.
func TestTroubleOfSweepsIsNotRepeatedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		told := swept(slog.New(slog.NewTextHandler(&out, nil)))
		lines := func(want int, last string) {
			t.Helper()
			got := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(got) != want || !strings.Contains(got[len(got)-1], last) {
				t.Errorf("%d lines, want %d, the last with %q:\n%s", len(got), want, last, &out)
			}
		}
		bad := semel.SweepEnded{Err: errors.Join(errors.New("the record a is newer"), errors.New("the record b is newer"))}
		for range 300 {
			told(bad)
			<-time.After(time.Second)
		}
		lines(1, "the record a is newer; and 1 more")
		<-time.After(10 * time.Minute)
		told(bad)
		lines(2, "the record a is newer; and 1 more")
		told(semel.SweepEnded{Err: errors.New("the archive is down")})
		lines(3, "the archive is down")
		for range 10 {
			told(semel.SweepEnded{})
		}
		lines(4, "sweeps succeed again")
	})
}

// While a store is away, a line a second says so for each kind of call, and no failure is left
// out of the counts.
func TestFailuresOfTheStoreAreCountedInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		told := storeFailed(slog.New(slog.NewJSONHandler(&out, nil)))
		const seconds, each = 5, 100
		for range seconds {
			for range each {
				told(semel.StoreFailed{Call: "apply", Try: 1, Err: errors.New("the disk is full")})
				told(semel.StoreFailed{Call: "get", Try: 1, Err: errors.New("no connection")})
			}
			<-time.After(sampleEvery)
		}
		<-time.After(2 * sampleEvery)
		told(semel.StoreFailed{Call: "apply", Try: 1, Err: errors.New("later")})
		counts, lines := map[string]int{}, map[string]int{}
		for text := range strings.Lines(out.String()) {
			var line struct {
				Call, Error string
				Count       int
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			counts[line.Call+": "+line.Error] += line.Count
			lines[line.Call]++
		}
		if counts["apply: the disk is full"] != seconds*each || counts["get: no connection"] != seconds*each || counts["apply: later"] != 1 {
			t.Errorf("counted were %v", counts)
		}
		if lines["apply"] > seconds+3 || lines["get"] > seconds+2 {
			t.Errorf("lines are %v:\n%s", lines, &out)
		}
		<-time.After(2 * sampleEvery)
	})
}

// The evidence log tries again each second. An error that lasts until a restart is logged once
// an hour, whatever the size of the log in its text, and another once a minute.
func TestFaultsOfTheEvidenceAreNotRepeatedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		told := evidenceErrors(slog.New(slog.NewTextHandler(&out, nil)))
		for n := range 150 {
			told(fmt.Errorf("%d entries: %w", n, evidence.ErrFork))
			told(errors.New("the witness does not answer"))
			<-time.After(1100 * time.Millisecond) // so that none comes when a minute ends
		}
		synctest.Wait()
		if forks, others := strings.Count(out.String(), "level=ERROR"), strings.Count(out.String(), "level=WARN"); forks != 1 || others != 3 {
			t.Errorf("%d and %d lines:\n%s", forks, others, &out)
		}
	})
}

func TestReadinessNamesWhatSweepsLeave(t *testing.T) {
	s := new(Server)
	if c := s.sweeping(); c.Err != nil || c.Detail != "none yet" {
		t.Errorf("got %+v", c)
	}
	s.lastSweep.Store(&semel.SweepEnded{Swept: semel.Swept{Due: 9, Left: 3, Unreadable: 2}, Err: errors.New("the record a is newer")})
	c := s.sweeping()
	for _, part := range []string{"the record a is newer", "2 records can't be read", "3 due records are left to programs that have their operations"} {
		if !strings.Contains(c.Detail, part) {
			t.Errorf("%q does not say %q", c.Detail, part)
		}
	}
	if c.Err != nil {
		t.Errorf("the node is unready because of it: %v", c.Err)
	}
	s.sweptAt.Store(0)
	s.noteSweep(semel.SweepEnded{Swept: semel.Swept{Due: 9, Waiting: 9}})
	if c := s.sweeping(); c.Amiss || s.sweptAt.Load() == 0 {
		t.Errorf("a queue for a reconciler is trouble: %+v", c)
	}
}

// The line about an end that somebody else decided has the word of the verdict: what an operator
// says isn't an execution, and a release is called one.
func TestAnEndIsLoggedAsTheVerdictHasIt(t *testing.T) {
	var out bytes.Buffer
	engine, err := semel.New(memstore.New(), &semel.Options{
		Operations: []semel.Operation{{Name: "pay"}}, Events: observe(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	})
	if err != nil {
		t.Fatal(err)
	}
	line := func() (state string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var last struct{ Msg, State string }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Msg != "ended" {
			t.Fatal(out.String(), err)
		}
		return last.State
	}
	for _, outcome := range []store.Disposition{semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed, semel.DispositionAborted, semel.DispositionAbandoned} {
		ans, err := engine.Begin(t.Context(), semel.Call{Operation: "pay", Key: outcome.String()})
		if err := errors.Join(err, ans.Attempt.Hold(t.Context(), "no answer")); err != nil {
			t.Fatal(err)
		}
		if got := line(); got != string(verdict.Held) {
			t.Errorf("a held call is %q in the log", got)
		}
		rec, err := engine.Settle(t.Context(), ans.Attempt.ID(), semel.Settlement{Outcome: outcome, Who: "olga"}, "looked")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := line(), verdict.Of(&verdict.Facts{Record: &rec}).State; got != string(want) {
			t.Errorf("what was settled as %s is %q in the log, and %q for the verdict", outcome, got, want)
		}
	}
	ans, err := engine.Begin(t.Context(), semel.Call{Operation: "pay", Key: "done"})
	if err := errors.Join(err, ans.Attempt.Complete(t.Context(), semel.Result{})); err != nil {
		t.Fatal(err)
	}
	if got := line(); got != "" { // an inbox completes what it has only accepted
		t.Errorf("an end by its holder is %q", got)
	}
}
