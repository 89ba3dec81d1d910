package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// cost is what a server says that it has done, without what it was asked for that.
type cost struct {
	// commands has the calls of each, those within scripts, too.
	commands map[string]int
	// in and out are bytes of the network, file is those of the append-only file.
	in, out, file int
}

// uncounted are the commands by which the test asks for the cost, and by which clients connect
// and processes read the server's clock now and then. A get is among them; of records that are
// read by it, the bytes are counted.
var uncounted = []string{"info", "time", "get", "ping", "hello", "client|setinfo", "client|tracking", "client"}

// costOf returns what a server has done so far. Nothing of it depends on how busy the machine is.
func costOf(srv *redistest.Server) cost {
	c := cost{commands: map[string]int{}}
	for line := range strings.Lines(srv.Do("INFO", "everything")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "total_net_input_bytes":
			c.in = number(value)
		case "total_net_output_bytes":
			c.out = number(value)
		case "aof_current_size":
			c.file = number(value)
		}
		if command, ok := strings.CutPrefix(name, "cmdstat_"); ok && !slices.Contains(uncounted, command) {
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			c.commands[command] = number(calls)
		}
	}
	return c
}

// spent returns what a server does for f.
func spent(srv *redistest.Server, f func()) cost {
	costOf(srv) // asking costs bytes; the next time it is paid for
	before := costOf(srv)
	f()
	after := costOf(srv)
	asked := costOf(srv)
	c := cost{maps.Clone(after.commands), after.in - before.in - (asked.in - after.in), after.out - before.out - (asked.out - after.out), after.file - before.file}
	for name, n := range before.commands {
		if c.commands[name] -= n; c.commands[name] == 0 {
			delete(c.commands, name)
		}
	}
	return c
}

// answerSize is the size of an outcome's answer.
const answerSize = 1 << 10

// Benchmarks have the times. This test has what can be counted, which no noise moves: a call
// costs two round trips, one to begin and one to complete, and a replay one, which writes
// nothing. Calls that share runs of the script share their round trips, too.
func TestWhatACallCosts(t *testing.T) {
	srv := redistest.Start(t, "always")
	s := mustOpen(t, srv.URL(), nil)
	e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	begin := func(n int) *semel.Answer {
		ans, err := e.Begin(t.Context(), semel.Call{
			Tenant: "tenant", Principal: "principal", Operation: "payments.charge", Key: fmt.Sprintf("key-%09d", n),
			Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("payload")),
		})
		if err != nil {
			t.Fatal(err)
		}
		return &ans
	}
	pairs := func(from, n int) {
		for i := from; i < from+n; i++ {
			if err := begin(i).Attempt.Complete(t.Context(), semel.Result{Data: []byte(strings.Repeat("r", answerSize))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	pairs(0, 2) // after which the server knows the script, and the client has its connections
	const n = 100
	wantCost(t, "a pair of one caller", n, spent(srv, func() { pairs(2, n) }),
		map[string]int{"evalsha": 2 * n, "set": 2 * n, "zadd": 2 * n, "getrange": n}, answerSize+950, 60, answerSize+880)
	wantCost(t, "a replay", n, spent(srv, func() {
		for range n {
			if ans := begin(2); ans.Decision != semel.Replay {
				t.Fatal(ans.Decision)
			}
		}
	}), map[string]int{"evalsha": n, "set": n}, 500, answerSize+300, 0)

	claims, outcomes := make([]store.Write, 64), make([]store.Write, 64)
	for i := range claims {
		rec := small(fmt.Sprint("shared ", i))
		rec.State = semel.Processing
		done := rec
		done.Revision, done.State, done.Result.Data = newRevision(), semel.Completed, make([]byte, answerSize)
		claims[i], outcomes[i] = store.Write{Record: &rec}, store.Write{Record: &done, Expect: rec.Revision}
	}
	wantCost(t, "a pair of 64 that share runs", 64, spent(srv, func() { sendAll(t, s, claims...); sendAll(t, s, outcomes...) }),
		map[string]int{"evalsha": 2, "set": 128, "zadd": 128, "getrange": 64}, answerSize+430, 10, answerSize+540)
}

// wantCost checks the cost of n calls: the commands of all, and at most how many bytes each
// takes to the server, from it and into its file.
func wantCost(t *testing.T, what string, n int, got cost, commands map[string]int, in, out, file int) {
	t.Helper()
	t.Logf("%s: %v; in %d, out %d, file %d", what, got.commands, got.in/n, got.out/n, got.file/n)
	if !maps.Equal(got.commands, commands) {
		t.Errorf("%d times %s: the commands %v, want %v", n, what, got.commands, commands)
	}
	// The store notes the clock now and then, by some hundred bytes.
	const note = 2000
	if got.in > n*in+note || got.out > n*out+note || got.file > n*file+note {
		t.Errorf("%s: %d bytes to the server, %d from it, %d in its file; want at most %d, %d, %d", what, got.in/n, got.out/n, got.file/n, in, out, file)
	}
}

// What a call, a page and a purge cost doesn't depend on how many records there are: the same
// commands, and as many bytes of answers, which are the elements that the server has touched.
func TestCostsAreFlat(t *testing.T) {
	sizes := [2]int{1_000, 10_000}
	if thorough.Run() {
		sizes = [2]int{10_000, 1_000_000}
	}
	srv := redistest.Start(t, "")
	var costs [2]map[string]cost
	for i, n := range sizes {
		s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
		fill(t, s, n)
		costs[i] = costsOf(t, srv, s)
		srv.Do("FLUSHALL")
	}
	for _, what := range slices.Sorted(maps.Keys(costs[0])) {
		few, many := costs[0][what], costs[1][what]
		t.Logf("%-26s %7d records: %v, %d bytes; %7d: %v, %d bytes", what, sizes[0], few.commands, few.in+few.out, sizes[1], many.commands, many.in+many.out)
		if sum(many.commands)*4 > sum(few.commands)*5 || (many.in+many.out)*4 > (few.in+few.out)*5+2000 {
			t.Errorf("%s grows with the store", what)
		}
	}
}

func sum(calls map[string]int) (n int) {
	for _, c := range calls {
		n += c
	}
	return n
}

// madeAt is when the records of fill were created; madeBy has the name of each.
const madeAt = store.Instant(1e18)

// fill stores n outcomes, each with an attribute of its own.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	var senders sync.WaitGroup
	for sender := range 4 {
		senders.Go(func() {
			var batch []*write
			for i := sender; i < n; i += 4 {
				rec := filled(i)
				w, err := s.newWrite(&store.Write{Record: &rec})
				if err != nil {
					t.Error(err)
					return
				}
				if batch = append(batch, w); len(batch) == maxBatch || i+4 >= n {
					s.send(t.Context(), batch)
					for _, w := range batch {
						if w.err != nil || !w.made {
							t.Error("a record was not stored:", w.err)
							return
						}
					}
					batch = nil
				}
			}
		})
	}
	senders.Wait()
}

// filled is the i-th record of fill.
func filled(i int) semel.Record {
	rec := small(fmt.Sprint("filled ", i))
	rec.Revision = store.Revision{15: 1}
	rec.CreatedAt = madeAt.Add(time.Duration(i) * time.Microsecond)
	rec.NextAt = rec.CreatedAt.Add(testWindow)
	rec.Attributes = store.Attributes{"order": fmt.Sprint(i)}
	return rec
}

// costsOf returns what each kind of call costs on a store that fill has filled.
func costsOf(t *testing.T, srv *redistest.Server, s *Store) map[string]cost {
	t.Helper()
	costs := map[string]cost{}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	search := func(q store.Query, want int) func() {
		return func() {
			page, err := s.Search(t.Context(), q)
			if must(err); len(page.Records) != want {
				t.Fatalf("found %d records, want %d", len(page.Records), want)
			}
		}
	}
	claimed := small("new")
	claimed.CreatedAt, claimed.NextAt = madeAt.Add(24*time.Hour), madeAt.Add(25*time.Hour)
	done := claimed
	done.Revision = newRevision()
	again := filled(500)
	// After this the server knows the scripts.
	mustApply(t, s, small("first"), store.Revision{})
	search(store.Query{Attributes: store.Attributes{"order": "1"}}, 1)()
	_, err := s.Due(t.Context(), store.DueQuery{Until: madeAt.Add(testWindow), Limit: 1})
	must(err)
	last := filled(999)
	_, err = s.Purge(t.Context(), []store.Ref{last.Ref()})
	must(err)
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"begin", func() { mustApply(t, s, claimed, store.Revision{}) }},
		{"complete", func() { mustApply(t, s, done, claimed.Revision) }},
		{"replay", func() {
			if _, applied, err := s.Apply(t.Context(), store.Write{Record: &again}); applied || err != nil {
				t.Fatal(applied, err)
			}
		}},
		{"get", func() { _, err := s.Get(t.Context(), again.ID); must(err) }},
		{"search for an attribute", search(store.Query{Limit: 50, Attributes: store.Attributes{"order": "321"}}, 1)},
		{"search for no record", search(store.Query{Limit: 50, Attributes: store.Attributes{"order": "none"}}, 0)},
		{"page of the newest", search(store.Query{Limit: 50}, 50)},
		{"page of what is due", func() {
			page, err := s.Due(t.Context(), store.DueQuery{Until: madeAt.Add(testWindow + time.Second), Limit: 50})
			if must(err); len(page.Records) < 40 { // a page ends where some shard has unread entries
				t.Fatalf("%d records are due", len(page.Records))
			}
		}},
		{"purge", func() {
			var refs []store.Ref
			for i := range 50 {
				rec := filled(i)
				refs = append(refs, rec.Ref())
			}
			if n, err := s.Purge(t.Context(), refs); n != 50 || err != nil {
				t.Fatal(n, err)
			}
		}},
	} {
		costs[c.what] = spent(srv, c.do)
	}
	return costs
}
