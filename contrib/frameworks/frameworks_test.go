package frameworks

import (
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/frameworktest"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

var update = flag.Bool("update", false, "write the tables of docs/frameworks.md anew")

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A wiring is how a guard stands in a framework, and what is to come of it.
type wiring struct {
	name string
	make func(*frameworktest.Service) (url string)
	// broken: no recoverer answers, so the connection breaks after a panic.
	broken bool
	// packs: it has a compressor around the guard.
	packs bool
	// apart: the handlers can't find the transaction.
	apart bool
}

var wirings = []wiring{
	{name: "net/http", make: withNetHTTP, broken: true},
	{name: "chi", make: withChi, packs: true},
	{name: "gorilla/mux", make: withGorilla, packs: true},
	{name: "huma, on chi", make: withHuma, packs: true},
	{name: "gin, with `semelgin`", make: withGin, packs: true},
	{name: "echo v5, with `semelecho`", make: withEcho, packs: true},
	{name: "echo v4, behind the guard", make: withEcho4},
	{name: "fiber, around a guarded handler of net/http", make: withFiber, packs: true},
	{name: "fiber, behind the guard", make: withFiberApp, broken: true, apart: true},
}

// TestFrameworks tries each wiring with its rows in the transaction of the call, and without.
func TestFrameworks(t *testing.T) {
	db := frameworktest.New(t)
	inside, alone := make([]string, len(wirings)), make([]string, len(wirings))
	t.Run("each", func(t *testing.T) {
		for i, w := range wirings {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				if !w.apart {
					inside[i] = w.try(t, db, true)
				}
				alone[i] = w.try(t, db, false)
			})
		}
	})
	const head = "| wiring | 20 duplicates at once | an error after the `INSERT` | a panic after the `INSERT` | the client hangs up after the `INSERT` |\n|---|---|---|---|---|\n"
	tables := "In a transaction:\n\n" + head + strings.Join(inside, "") + "\nOn its own connection, without a transaction:\n\n" + head + strings.Join(alone, "")
	t.Log("\n" + tables)
	checkPage(t, tables)
}

// try tries a wiring, and returns its line of the table.
func (w *wiring) try(t *testing.T, db *frameworktest.Database, tx bool) string {
	s := db.Service(t, tx)
	got, want := s.Try(w.make(s)), w.want(tx)
	if got != want {
		t.Errorf("in a transaction: %t:\ngot  %+v\nwant %+v", tx, got, want)
	}
	for _, e := range s.Told() {
		t.Errorf("told of %v", e.Err)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", w.name, got.Storm, got.Fail, got.Panic, got.HangUp)
}

// TestCompression: those that compress for each delivery are around the guard, and who asks
// otherwise the second time gets what they can read.
func TestCompression(t *testing.T) {
	db := frameworktest.New(t)
	for _, w := range wirings {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := db.Service(t, false)
			url, key := w.make(s), rand.Text()
			for i, coding := range []string{"gzip", "identity", "gzip", "identity"} {
				a := s.Post(frameworktest.Accepts(t.Context(), coding), url, frameworktest.Make, key)
				packed := w.packs && coding == "gzip"
				if a.Status != 201 || !strings.Contains(a.Body, key) || a.Replayed != (i > 0) || a.Packed != packed {
					t.Errorf("delivery %d, which accepts %s, got %+v", i+1, coding, a)
				}
			}
		})
	}
}

func (w *wiring) want(tx bool) frameworktest.Tried {
	first := "500"
	if w.broken {
		first = "no answer"
	}
	if tx {
		return frameworktest.Tried{Storm: "20 × 201, 1 row", Fail: "422, then 422, no row", Panic: first + ", then 201, 1 row", HangUp: "201, 1 row"}
	}
	return frameworktest.Tried{Storm: "20 × 201, 1 row", Fail: "422, then 422, 1 row", Panic: first + ", then 409, 1 row", HangUp: "201, 1 row"}
}

// checkPage holds the page to the tables of this run, or writes them.
func checkPage(t *testing.T, tables string) {
	t.Helper()
	const page = "../../docs/frameworks.md"
	const begin, end = "<!-- written by go test -update in contrib/frameworks -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the tables", page)
	}
	want := before + begin + "\n" + tables + "\n" + end + after
	switch {
	case want == string(text):
	case *update && !t.Failed():
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has other tables: run go test -update here", page)
	}
}
