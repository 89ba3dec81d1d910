package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/store/memstore"
)

// TestWhatWaitsForADecision: one list of findings says what somebody has to do, before all is well.
func TestWhatWaitsForADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		s := ofStore(t, st)
		s.gauges.census = metrics.NewCensus(st)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		says := func(want string) {
			t.Helper()
			s.wantReady(t, 200, want)
		}
		says("[+] held ok: not counted yet\n")
		go s.gauges.census.Run(ctx)
		synctest.Wait()
		says("[+] held ok: no call waits for a decision\n")
		hold := func(operation, key string) {
			t.Helper()
			ans, err := s.engine.Begin(ctx, semel.Call{Operation: operation, Key: key})
			if err == nil {
				err = ans.Attempt.Hold(ctx, "the provider didn't answer")
			}
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(5 * time.Minute)
			synctest.Wait()
		}
		hold("op", "a")
		says("[!] held: 1 call of op waits for a decision, for 5m0s\n")
		hold("op", "b")
		says("[!] held: 2 calls of op wait for a decision, the oldest for 10m0s\n")
		hold("other", "b")
		says("[!] held: 3 calls wait for a decision, the oldest for 15m0s\n")
		s.gen.cfg.Admin.TokenFile = "token" // nobody is an operator without it
		w := httptest.NewRecorder()
		s.ready(w, httptest.NewRequestWithContext(ctx, "GET", "/readyz?verbose", nil))
		if strings.Contains(w.Body.String(), "held") {
			t.Errorf("a stranger is told of held calls: %s", w.Body)
		}
		if err := s.engine.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestAStoreThatIsAwayIsOneFinding: its cause in words and since when, and none of the checks that
// fail by it.
func TestAStoreThatIsAwayIsOneFinding(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	_, refused := pgx.Connect(t.Context(), "postgres://u:secret@"+gone.Addr().String()+"/semel?sslmode=disable")
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-late.Done()
	for _, test := range []struct {
		address string
		err     error
		want    string
	}{
		{"postgres://u@db:5432/semel", fmt.Errorf("pgstore: get: %w", refused), "PostgreSQL at db:5432 refuses connections"},
		{"redis-cluster://a:1,b:2", late.Err(), "Redis at a:1,b:2 doesn't answer"},
		{"valkey://a:1", late.Err(), "Redis at a:1 doesn't answer"},
		{"postgres://nowhere/semel", fmt.Errorf("dial: %w", &net.DNSError{Err: "no such host", Name: "nowhere"}), "PostgreSQL at nowhere isn't found: no address has that name"},
		{"pebble:./data", errors.New("get: no turn: a\n\tb"), "the store: get: no turn: a b"},
	} {
		if got := inWords(test.address, test.err); got != test.want {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
	s := ofStore(t, clockless{memstore.New()})
	s.gauges.census = metrics.NewCensus(s.store)
	s.storeName = "postgres://u@db:5432/semel"
	want := "PostgreSQL at db:5432: the clock has stopped, since " + time.Now().UTC().Format("15:04 UTC")
	var all []string
	for _, c := range s.checks(t.Context()) {
		if c.Err != nil || c.Amiss {
			all = append(all, fmt.Sprint(c.Name, " ", c.Detail, " ", c.Err))
		}
	}
	if len(all) != 1 || !strings.Contains(all[0], want) || !strings.Contains(all[0], "(2 checks wait for it)") {
		t.Errorf("it finds %q, want %q", all, want)
	}
	s.awaySince.Store(time.Now().Add(-time.Hour).Unix())
	if err := s.checks(t.Context())[1].Err; err == nil || !strings.Contains(err.Error(), time.Now().Add(-time.Hour).UTC().Format("15:04 UTC")) {
		t.Errorf("since when it is away is forgotten: %v", err)
	}
	s.store = memstore.New()
	if s.engine, err = semel.New(s.store, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.checks(t.Context())[1].Err; err != nil || s.awaySince.Load() != 0 {
		t.Errorf("a store that answers again: %v, away since %d", err, s.awaySince.Load())
	}
}
