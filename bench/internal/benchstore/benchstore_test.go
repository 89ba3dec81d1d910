package benchstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/codec"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

func TestParseStatus(t *testing.T) {
	got := parseStatus("Name:\tsemel\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n")
	if got != (Memory{Resident: 1 << 20, Peak: 2 << 20}) {
		t.Errorf("memory = %+v", got)
	}
}

// options are those of a run that is over soon.
func options(dir string) Options {
	return Options{Dir: dir, Callers: 8, ResultBytes: 300, Duration: 60 * time.Millisecond, Rounds: 2}
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantWork(t *testing.T, name string, m *Measure) {
	t.Helper()
	if m == nil || m.Operations == 0 || m.OpsPerSecond <= 0 || m.Errors != 0 || m.Seconds <= 0 {
		t.Fatalf("%s = %+v", name, m)
	}
	if l := m.Latency; l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
		t.Errorf("%s: latency = %+v", name, l)
	}
}

func TestRun(t *testing.T) {
	t.Run("the memory store does it", func(t *testing.T) {
		r := run(t, options(""))
		wantWork(t, "ours", r.Ours)
		if r.Store != "memory" || r.Bare != nil || r.Filled != nil {
			t.Errorf("report = %+v", r)
		}
	})
	t.Run("the Pebble store does it and leaves nothing behind", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "made", "by", "run")
		r := run(t, options(dir))
		wantWork(t, "ours", r.Ours)
		if names := list(t, dir); r.Store != "pebble" || len(names) != 0 {
			t.Errorf("store %s, files left: %q", r.Store, names)
		}
	})
	t.Run("the ratio is the median of the rounds", func(t *testing.T) {
		o := options(t.TempDir())
		o.Compare, o.Rounds = true, 3
		r := run(t, o)
		wantWork(t, "ours", r.Ours)
		wantWork(t, "bare", r.Bare)
		if len(r.Rounds) != 3 {
			t.Fatalf("rounds = %+v", r.Rounds)
		}
		ratios := []float64{r.Rounds[0].Ratio, r.Rounds[1].Ratio, r.Rounds[2].Ratio}
		slices.Sort(ratios)
		if r.Ratio != ratios[1] || r.RatioOfTotals != r.Ours.OpsPerSecond/r.Bare.OpsPerSecond {
			t.Errorf("ratio = %v of %v, of totals %v", r.Ratio, ratios, r.RatioOfTotals)
		}
		if r.OutcomeBytes <= o.ResultBytes || r.ClaimBytes <= 0 || r.ClaimBytes >= r.OutcomeBytes {
			t.Errorf("sizes = %d and %d", r.ClaimBytes, r.OutcomeBytes)
		}
	})
	t.Run("a filled store replays its records, and is compared with a small one", func(t *testing.T) {
		o := options(t.TempDir())
		o.Records, o.Compare, o.Callers = 500, true, 64
		r := run(t, o)
		if r.Filled == nil || r.Small == nil || r.Filled.Records != 500 || r.Small.Records != SmallRecords || r.Filled.FillSeconds <= 0 {
			t.Fatalf("filled = %+v, small = %+v", r.Filled, r.Small)
		}
		wantWork(t, "filled replay", &r.Filled.Replay)
		wantWork(t, "filled execute", &r.Filled.Execute)
		wantWork(t, "small replay", &r.Small.Replay)
		wantWork(t, "small execute", &r.Small.Execute)
		wantWork(t, "ours", r.Ours)
		if r.ScaleRatio <= 0 || r.ReplayScaleRatio <= 0 || r.Ratio <= 0 {
			t.Errorf("ratios = %v, %v, %v", r.ScaleRatio, r.ReplayScaleRatio, r.Ratio)
		}
	})
	t.Run("the data can be kept", func(t *testing.T) {
		dir := t.TempDir()
		o := options(dir)
		o.Keep = true
		run(t, o)
		names := list(t, dir)
		if len(names) != 1 || !strings.HasPrefix(names[0], dataPrefix) {
			t.Fatalf("files = %q", names)
		}
		store, err := pebblestore.Open(filepath.Join(dir, names[0], "ours"), nil)
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
		run(t, o) // beside what an earlier run left
	})
	t.Run("an interrupt ends it and leaves nothing behind", func(t *testing.T) {
		dir := t.TempDir()
		o := options(dir)
		o.Duration = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		o.Progress = func(string, ...any) { cancel() }
		if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v", err)
		}
		if names := list(t, dir); len(names) != 0 {
			t.Errorf("files left: %q", names)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	t.Run("a directory with files of others, which it leaves alone", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "letter.txt")
		if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), options(dir)); err == nil || !strings.Contains(err.Error(), "letter.txt") {
			t.Errorf("error = %v", err)
		}
		if names := list(t, dir); !slices.Equal(names, []string{"letter.txt"}) {
			t.Errorf("files = %q", names)
		}
	})
	t.Run("a directory that another run is using", func(t *testing.T) {
		dir := t.TempDir()
		w, err := openDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), options(dir)); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("error = %v", err)
		}
		if err := w.close(false); err != nil {
			t.Fatal(err)
		}
		run(t, options(dir))
	})
	t.Run("options that make no sense, all at once", func(t *testing.T) {
		o := Options{ResultBytes: -1, Records: -1, Compare: true}
		err := o.Validate()
		for _, flag := range []string{"--callers", "--result-bytes", "--duration", "--rounds", "--records", "--compare needs another --store"} {
			if err == nil || !strings.Contains(err.Error(), flag) {
				t.Errorf("%s is not in: %v", flag, err)
			}
		}
	})
}

func TestErrorsAreReported(t *testing.T) {
	store := memstore.New()
	tg, err := newTarget(store, 10)
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	var all tally
	m := all.measure()
	for range 100 { // on a busy machine a turn may end before a caller has begun
		if m.Errors > 0 {
			break
		}
		all.turn(t.Context(), newCallers(2), 10*time.Millisecond, tg.execute)
		m = all.measure()
	}
	if m.Errors == 0 || m.Operations != 0 || m.FirstError == "" || m.fault("ours") == nil {
		t.Errorf("measure = %+v", m)
	}
}

// TestSample compares the sizes that the bare loop writes with what the engine leaves in
// a store.
func TestSample(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	tg, err := newTarget(store, 777)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tg.takeSample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if store.Len() != 0 {
		t.Error("the sample was taken in the store to be measured")
	}
	if s.claim.State != semel.Processing || s.outcome.State != semel.Completed || len(s.outcome.Result.Data) != 777 {
		t.Fatalf("sample = %v and %v with %d bytes", s.claim.State, s.outcome.State, len(s.outcome.Result.Data))
	}
	c := newCallers(1)[0]
	if err := tg.execute(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	stored, err := store.Get(t.Context(), semel.ID{Tenant: tenant, Principal: principal, Operation: operationName, Key: string(c.buf)})
	if err != nil {
		t.Fatal(err)
	}
	want, err := codec.Append(nil, stored)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.Append(nil, &s.outcome)
	if err != nil {
		t.Fatal(err)
	}
	if d := len(got) - len(want); d < -8 || d > 8 {
		t.Errorf("the sample has %d bytes, what was stored %d", len(got), len(want))
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
