package metamorphic

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

var (
	seedFlag  = flag.Uint64("metamorphic.seed", 0, "seed of the lists; 0 chooses one")
	listsFlag = flag.Int("metamorphic.lists", 300, "how many lists are played")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(pgtest.Main(m))
}

// participant is a store that takes part. The first one is the oracle.
type participant struct {
	name  string
	store store
}

func participants(t *testing.T) []participant {
	t.Helper()
	server := pgtest.Shared(t)
	redis := redistest.Start(t, "always")
	mem := memstore.New()
	pebble, err := pebblestore.Open("store", &pebblestore.Options{FS: vfs.NewMem(), MemTableBytes: 256 << 10})
	closing(t, pebble, err)
	// A slow machine is no difference between stores.
	pg, err := pgstore.Open(t.Context(), server.URL(server.Database(t)), &pgstore.Options{
		Migrate: true, NoNotices: true, AcquireTimeout: 30 * time.Second, LockTimeout: 30 * time.Second,
	})
	closing(t, pg, err)
	rs, err := redisstore.Open(t.Context(), redis.URL(), &redisstore.Options{Timeout: 30 * time.Second})
	closing(t, rs, err)
	return []participant{{"memstore", mem}, {"pebblestore", pebble}, {"pgstore", pg}, {"redisstore", rs}}
}

func closing(t *testing.T, s interface{ Close() error }, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// TestAllStoresGiveTheSameAnswers plays lists one after the other, each on all
// stores at once. A list has a tenant of its own and leaves nothing, so that it does
// not matter which lists were played before.
func TestAllStoresGiveTheSameAnswers(t *testing.T) {
	all := participants(t)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()>>1 + 1
	}
	t.Logf("repeat with -metamorphic.seed=%d", seed)
	configure(t, seed, *listsFlag)
	table := table{participants: all}
	counts := map[string]int{}
	played, steps := 0, 0
	start := time.Now()
	rapid.Check(t, func(rt *rapid.T) {
		l := drawList().Draw(rt, "list")
		answers, err := table.compare(t.Context(), l)
		if err != nil {
			// What is fatal stays the same while the list gets shorter.
			rt.Logf("%v", err)
			rt.Fatalf("two stores differ: -metamorphic.seed=%d", seed)
		}
		played, steps = played+1, steps+len(l.steps)
		count(counts, answers)
	})
	t.Logf("%d lists, %d steps, %d stores, %v: %s", played, steps, len(all), time.Since(start).Round(time.Millisecond), summary(counts))
	if t.Failed() || played < 300 {
		return
	}
	// A rule that no list comes to is not tested.
	for _, kind := range reached {
		if counts[kind] == 0 {
			t.Errorf("in %d lists there was no %q", played, kind)
		}
	}
}

// reached are the answers that lists have to come to.
var reached = []string{
	"begin execute", "begin replay", "begin in_flight", "begin conflict", "begin held", "begin expired", "begin error",
	"complete done", "complete refused", "reject done", "fail done", "abort done", "hold done", "abandon done",
	"renew done", "renew refused", "start effect done", "start effect refused", "confirm effect done", "confirm effect refused", "refute effect done", "refute effect refused",
	"settle done", "settle refused", "forget done", "forget refused", "sweep some", "lookup record", "lookup nothing",
	"apply right applied", "apply zero applied", "apply zero refused", "apply foreign refused", "apply old refused", "again refused",
	"due some", "due none", "purge some", "purge none", "get record", "get nothing",
	"search all some", "search state some", "search held some", "search key some", "search operation some", "search principal some",
	"search after some", "search before some", "search bad cursor",
}

// configure sets rapid up through its flags, which are its only way to be told.
func configure(t *testing.T, seed uint64, lists int) {
	t.Helper()
	for name, value := range map[string]string{
		"rapid.seed": strconv.FormatUint(seed, 10), "rapid.checks": strconv.Itoa(lists), "rapid.nofailfile": "true",
	} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// table is the stores that play the same lists.
type table struct {
	participants []participant
	now          semel.Instant // when the list before has ended
}

// compare plays a list on all stores and describes the first difference from the
// first one.
func (t *table) compare(ctx context.Context, l list) ([]answer, error) {
	all := t.participants
	begin := max(epoch, t.now.Add(time.Hour))
	begin -= (begin - epoch) % semel.Instant(time.Second)
	answers, ended, errs := make([][]answer, len(all)), make([]semel.Instant, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { answers[i], ended[i], errs[i] = play(ctx, p.store, begin, l) })
	}
	wg.Wait()
	t.now = slices.Max(ended)
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", all[i].name, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	oracle := answers[0]
	for n := range oracle {
		for i := 1; i < len(all); i++ {
			if answers[i][n] != oracle[n] {
				return nil, fmt.Errorf("%s differs from %s in %s\n%s\n%s", all[i].name, all[0].name, where(l, n), shown(all, answers, n), before(l, oracle, n))
			}
		}
	}
	return oracle, nil
}

func where(l list, n int) string {
	if n < len(l.steps) {
		return fmt.Sprintf("step %d, %v", n, l.steps[n])
	}
	return "what is stored in the end"
}

// shown is the answers of all stores to one step.
func shown(all []participant, answers [][]answer, n int) string {
	var b strings.Builder
	for i, p := range all {
		fmt.Fprintf(&b, "  %-12s %s: %s\n", p.name, answers[i][n].kind, answers[i][n].text)
	}
	return b.String()
}

// before is what the steps up to one gave.
func before(l list, oracle []answer, n int) string {
	var b strings.Builder
	for i := max(0, n-8); i < min(n, len(l.steps)); i++ {
		fmt.Fprintf(&b, "  %3d %v: %s %.300s\n", i, l.steps[i], oracle[i].kind, oracle[i].text)
	}
	return b.String()
}
