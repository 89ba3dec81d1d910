package peers

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/bench/internal/benchstore"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

var (
	duration = flag.Duration("peers.duration", 60*time.Millisecond, "how long each side of a comparison is measured")
	rounds   = flag.Int("peers.rounds", 2, "turns that each side takes")
	jsonFile = flag.String("peers.json", "", "`file` to write the results to, as JSON")
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// report is what -peers.json writes. The comparisons are as go run ./bench --json has
// them: "ours" is Semel, and "bare" is the peer.
type report struct {
	CPUs        int          `json:"cpus"`
	Go          string       `json:"go"`
	Comparisons []comparison `json:"comparisons"`
}

type comparison struct {
	Name    string `json:"name"`
	Callers int    `json:"callers"`
	benchstore.Comparison
	// AllocsRatio is allocations per operation of the peer divided by ours: as with
	// Ratio, more is better.
	AllocsRatio float64 `json:"allocs_ratio"`
}

// contest is a planned comparison.
type contest struct {
	name, peer   string
	callers, hot int
	ours, theirs benchstore.Do
}

// TestPeers compares. It fails if an answer is wrong, never because of a ratio.
func TestPeers(t *testing.T) {
	out := report{CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version()}
	compare := func(c contest) {
		opts := benchstore.Options{Callers: c.callers, Duration: *duration, Rounds: *rounds}
		got, err := benchstore.Contest(t.Context(), opts, c.peer, c.hot, c.ours, c.theirs)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			return
		}
		row := comparison{c.name, c.callers, got, got.Bare.AllocsPerOp / got.Ours.AllocsPerOp}
		out.Comparisons = append(out.Comparisons, row)
		t.Logf("%-28s %9.0f/s, %s %9.0f/s: ratio %.2f, of allocations %.2f",
			c.name, got.Ours.OpsPerSecond, c.peer, got.Bare.OpsPerSecond, got.Ratio, row.AllocsRatio)
	}

	const fiberPeer, dbosPeer = "Fiber idempotency", "DBOS Transact"
	compare(contest{"middleware, memory", fiberPeer, 1, 0, middleware(t, memstore.New()), fiberMiddleware(t, "")})

	pg := pgtest.Start(t, nil)
	url := pg.URL(pg.Database(t))
	// Some callers wait longer than the service would let them; that is part of the load.
	store, err := pgstore.Open(t.Context(), url, &pgstore.Options{Migrate: true, AcquireTimeout: semel.DefaultStoreTimeout})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := calls(t, store), workflows(t, url)
	compare(contest{"PostgreSQL", dbosPeer, 64, 0, ours, theirs})
	compare(contest{"PostgreSQL, hot duplicates", dbosPeer, 64, 8, ours, theirs})
	compare(contest{"PostgreSQL, one caller", dbosPeer, 1, 0, ours, theirs})

	redis := redistest.Start(t, "always").URL()
	rs, err := redisstore.Open(t.Context(), redis, nil)
	if err != nil {
		t.Fatal(err)
	}
	compare(contest{"middleware, Redis", fiberPeer, 64, 0, middleware(t, rs), fiberMiddleware(t, redis)})

	if *jsonFile != "" {
		text, err := json.MarshalIndent(out, "", "  ")
		if err == nil {
			err = os.WriteFile(*jsonFile, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
