package faultstore_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

var id = semel.ID{Tenant: "t", Operation: "o", Key: "k"}

func write(rev byte) store.Write {
	return store.Write{Record: new(semel.Record{ID: id, Revision: store.Revision{rev}, State: semel.Processing})}
}

// has reports whether a record is stored.
func has(t *testing.T, s semel.Store) bool {
	t.Helper()
	_, err := s.Get(t.Context(), id)
	if err != nil && !errors.Is(err, semel.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestForms(t *testing.T) {
	for _, test := range []struct {
		form         faultstore.Form
		at, later    bool // whether the write is there at once, and after the delay
		fails, waits bool
	}{
		{form: faultstore.NotApplied, fails: true},
		{form: faultstore.Applied, at: true, later: true, fails: true},
		{form: faultstore.Late, later: true, fails: true},
		{form: faultstore.Hang, fails: true, waits: true},
		{form: faultstore.Slow, at: true, later: true},
	} {
		t.Run("a write that is "+string(test.form), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memstore.New()
				s, control := faultstore.New(inner, &faultstore.Options{Delay: time.Second})
				control.Next(faultstore.Apply, test.form, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				_, applied, err := s.Apply(ctx, write(1))
				if (err != nil) != test.fails || applied != (err == nil) {
					t.Fatalf("applied %v, error %v", applied, err)
				}
				if err != nil && !errors.Is(err, faultstore.ErrInjected) {
					t.Fatalf("error %v is not marked as injected", err)
				}
				if took := time.Since(start); (took == time.Minute) != test.waits {
					t.Fatalf("it took %v", took)
				}
				if has(t, inner) != test.at {
					t.Fatalf("at once: stored %v, want %v", !test.at, test.at)
				}
				<-time.After(2 * time.Second)
				if has(t, inner) != test.later {
					t.Fatalf("later: stored %v, want %v", !test.later, test.later)
				}
				want := map[faultstore.Fault]int{{Verb: faultstore.Apply, Form: test.form}: 1}
				if got := control.Fired(); !maps.Equal(got, want) {
					t.Fatalf("fired %v, want %v", got, want)
				}
				if _, _, err := s.Apply(t.Context(), write(2)); err != nil {
					t.Fatalf("the call after the scripted one fails: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestEveryVerbFails(t *testing.T) {
	s, control := faultstore.New(memstore.New(), nil)
	calls := map[faultstore.Verb]func() error{
		faultstore.Apply: func() error { _, _, err := s.Apply(t.Context(), write(1)); return err },
		faultstore.Get:   func() error { _, err := s.Get(t.Context(), id); return err },
		faultstore.Now:   func() error { _, err := s.Now(t.Context()); return err },
		faultstore.Due: func() error {
			_, err := s.Extras().Due.Due(t.Context(), store.DueQuery{Until: store.InstantOf(time.Now()), Limit: 1})
			return err
		},
		faultstore.Purge:  func() error { _, err := s.Extras().Purge.Purge(t.Context(), nil); return err },
		faultstore.Search: func() error { _, err := s.Extras().Search.Search(t.Context(), store.Query{Limit: 1}); return err },
	}
	for verb, call := range calls {
		t.Run(string(verb)+" fails as often as it was asked to", func(t *testing.T) {
			control.Next(verb, faultstore.NotApplied, 2)
			control.Next(verb, faultstore.Applied, 1)
			for range 3 {
				if err := call(); !errors.Is(err, faultstore.ErrInjected) {
					t.Fatalf("error %v, want an injected one", err)
				}
			}
			if err := call(); err != nil && !errors.Is(err, semel.ErrNotFound) {
				t.Fatal(err)
			}
		})
		t.Run(string(verb)+" fails while the store is cut off, and not after", func(t *testing.T) {
			control.Cut(faultstore.NotApplied)
			if err := call(); !errors.Is(err, faultstore.ErrInjected) {
				t.Fatalf("error %v, want an injected one", err)
			}
			control.Heal()
			if err := call(); errors.Is(err, faultstore.ErrInjected) {
				t.Fatal(err)
			}
		})
	}
	if n := control.Total(); n != 4*len(calls) {
		t.Fatalf("%d faults fired, want %d", n, 4*len(calls))
	}
	if n := control.Total(faultstore.Applied); n != len(calls) {
		t.Fatalf("%d faults of the form %q fired, want %d", n, faultstore.Applied, len(calls))
	}
}

func TestHangingCallsReturn(t *testing.T) {
	for name, end := range map[string]func(semel.Store, *faultstore.Control){
		"when the connection heals":  func(_ semel.Store, c *faultstore.Control) { c.Heal() },
		"when the wrapper is closed": func(s semel.Store, _ *faultstore.Control) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, control := faultstore.New(memstore.New(), nil)
				control.Cut(faultstore.Hang)
				var err error
				done := false
				go func() {
					_, err = s.Now(t.Context())
					done = true
				}()
				synctest.Wait()
				if done {
					t.Fatal("the call did not hang")
				}
				end(s, control)
				synctest.Wait()
				if !done || !errors.Is(err, faultstore.ErrInjected) {
					t.Fatalf("returned %v, error %v", done, err)
				}
			})
		})
	}
}

func TestRandomFaults(t *testing.T) {
	rates := map[faultstore.Fault]float64{
		{Verb: faultstore.Apply, Form: faultstore.NotApplied}: 0.2,
		{Verb: faultstore.Apply, Form: faultstore.Applied}:    0.1,
	}
	run := func(seed uint64) (pattern string, fired map[faultstore.Fault]int) {
		s, control := faultstore.New(memstore.New(), &faultstore.Options{Seed: seed, Rates: rates})
		for range 2000 {
			if _, _, err := s.Apply(t.Context(), write(1)); err != nil {
				pattern += "x"
			} else {
				pattern += "."
			}
			if _, err := s.Now(t.Context()); err != nil {
				t.Fatalf("a verb without a rate fails: %v", err)
			}
		}
		return pattern, control.Fired()
	}
	first, fired := run(7)
	again, _ := run(7)
	other, _ := run(8)
	if first != again {
		t.Error("the same seed gives other faults")
	}
	if first == other {
		t.Error("another seed gives the same faults")
	}
	for fault, rate := range rates {
		if n := float64(fired[fault]) / 2000; n < rate*0.7 || n > rate*1.3 {
			t.Errorf("%v fired at a rate of %.3f, want about %.3f", fault, n, rate)
		}
	}
}

func TestReached(t *testing.T) {
	var seen []bool
	s, control := faultstore.New(memstore.New(), &faultstore.Options{Reached: func(_ store.Write, _ *semel.Record, applied bool, err error) {
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, applied)
	}})
	control.Next(faultstore.Apply, faultstore.NotApplied, 1)
	control.Next(faultstore.Apply, faultstore.Applied, 1)
	for range 3 {
		_, _, _ = s.Apply(t.Context(), write(1))
	}
	if len(seen) != 2 || !seen[0] || seen[1] {
		t.Fatalf("writes that reached the store were applied: %v, want [true false]", seen)
	}
}

func TestForwardedCallsReachTheStore(t *testing.T) {
	inner := memstore.New()
	s, _ := faultstore.New(inner, nil)
	w := write(1)
	w.Record.NextAt = store.InstantOf(time.Unix(1, 0))
	changed, stop := s.Extras().Watch.Watch(t.Context(), id)
	defer stop()
	if _, applied, err := s.Apply(t.Context(), w); err != nil || !applied {
		t.Fatal(applied, err)
	}
	select {
	case <-changed:
	default:
		t.Error("Watch was not forwarded")
	}
	if page, err := s.Extras().Due.Due(t.Context(), store.DueQuery{Until: store.InstantOf(time.Unix(2, 0)), Limit: 10}); err != nil || len(page.Records) != 1 {
		t.Errorf("Due gives %d records, %v", len(page.Records), err)
	}
	if page, err := s.Extras().Search.Search(t.Context(), store.Query{Limit: 1}); err != nil || len(page.Records) != 1 {
		t.Errorf("Search gives %d records, %v", len(page.Records), err)
	}
	if n, err := s.Extras().Purge.Purge(t.Context(), []store.Ref{{ID: id, Revision: w.Record.Revision}}); err != nil || n != 1 {
		t.Errorf("Purge gives %d, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := inner.Now(t.Context()); err == nil {
		t.Error("Close was not forwarded")
	}
}
