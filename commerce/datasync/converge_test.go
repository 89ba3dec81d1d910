package datasync_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// putAny makes some change on a side, and reports whether it was accepted.
func putAny(t *testing.T, s *side, r *rand.Rand, n int) bool {
	ref, version := user(fmt.Sprint("u", r.IntN(4))), int64(1)
	switch r.IntN(4) {
	case 0:
		ref = consent(fmt.Sprint("u", r.IntN(4)))
		for range s.History(t.Context(), ref) {
			version++
		}
	case 1:
		ref, version = product(fmt.Sprint("p", r.IntN(4))), 1+r.Int64N(20)
	default:
		if st, err := s.Get(t.Context(), ref, 0); err == nil {
			version = st.Version + 1 - r.Int64N(10)/9 // sometimes of a state that is gone
		}
	}
	_, err := s.Put(t.Context(), ref, version, fmt.Appendf(nil, `{"from":%q,"n":%d}`, s.origin, n))
	if err != nil && !errors.Is(err, datasync.ErrVersion) && !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
		t.Fatal(err)
	}
	return err == nil
}

// equal compares what two sides and their databases have.
func equal(t *testing.T, a, b *side) {
	t.Helper()
	if len(a.rows) != len(b.rows) {
		t.Errorf("%d rows and %d", len(a.rows), len(b.rows))
	}
	for at, mine := range a.rows {
		ref := datasync.Ref{Entity: at.entity, ID: at.id}
		x, y := a.get(ref, at.version), b.get(ref, at.version)
		if contents(x.Changes) != contents(y.Changes) {
			t.Errorf("%v: %s and %s", at, contents(x.Changes), contents(y.Changes))
		}
		if at.entity == "user" && x.Changes[0].Key() != y.Changes[0].Key() {
			t.Errorf("%v: %s has won, and %s", at, x.Changes[0].Key(), y.Changes[0].Key())
		}
		for _, of := range []struct {
			st  datasync.State
			row row
		}{{x, mine}, {y, b.rows[at]}} {
			if of.row.sequence != of.st.Sequence || contents(of.row.changes) != contents(of.st.Changes) {
				t.Errorf("%v: a database has %d %s, its side %d %s", at, of.row.sequence, contents(of.row.changes), of.st.Sequence, contents(of.st.Changes))
			}
		}
	}
}

func TestTwoSidesEndEqual(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.1", "MAP-SYNC.2", "MAP-SYNC.3", "MAP-SYNC.4", "MAP-SYNC.5")
	seed := thorough.Seed()
	for round := range uint64(thorough.Scaled(20)) {
		r := rand.New(rand.NewPCG(seed, round))
		a, b := newSide(t, "semel"), newSide(t, "shopify")
		b.store.now = start.Add(40 * time.Second) // its clock is ahead
		net := &network{rand: r, faulty: true, got: map[datasync.Outcome]int{}}
		net.connect(a, b)
		net.connect(b, a)
		sides := []*side{a, b}
		for made := 0; made < 1000; {
			s := sides[r.IntN(2)]
			switch r.IntN(4) {
			case 0, 1:
				if putAny(t, s, r, made) {
					made++
				}
			case 2:
				if list := s.due(); len(list) > 0 {
					s.work(&list[r.IntN(len(list))], net.chance(10))
				}
			default:
				net.step()
			}
			if d := time.Duration(r.IntN(2)) * time.Millisecond; r.IntN(3) == 0 {
				a.store.now, b.store.now = a.store.now.Add(d), b.store.now.Add(d)
			}
		}
		net.faulty = false
		for len(net.queue)+len(a.due())+len(b.due()) > 0 {
			a.workAll()
			b.workAll()
			net.step()
		}
		equal(t, a, b)
		t.Logf("seed %d, %d: %v; %d and %d were sent, %d and %d applied", seed, round, net.got, len(a.sent), len(b.sent), a.applied, b.applied)
		for _, out := range []datasync.Outcome{datasync.Applied, datasync.Duplicate, datasync.Superseded, datasync.Contested, datasync.Echo} {
			if net.got[out] < 10 {
				t.Errorf("only %d changes were %s: the test shows nothing", net.got[out], out)
			}
		}
	}
}

// TestMessagesAreCounted: what comes back makes no message, and each change makes one.
func TestMessagesAreCounted(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.4")
	a, b := newSide(t, "semel"), newSide(t, "shopify")
	net := &network{rand: rand.New(rand.NewPCG(thorough.Seed(), 0)), got: map[datasync.Outcome]int{}}
	net.connect(a, b)
	net.connect(b, a)
	const changes = 100
	for i := range int64(changes) {
		from := []*side{a, b}[i%2]
		from.put(user("u"), i+1, fmt.Sprintf(`{"n":%d}`, i))
		a.store.now, b.store.now = a.store.now.Add(time.Second), b.store.now.Add(time.Second)
		for len(net.queue)+len(a.due())+len(b.due()) > 0 {
			a.workAll()
			b.workAll()
			net.step()
		}
	}
	equal(t, a, b)
	if len(a.sent) != changes/2 || len(b.sent) != changes/2 || a.applied != changes || b.applied != changes || net.got[datasync.Applied] != changes || net.got[datasync.Echo] == 0 {
		t.Errorf("%d and %d were sent, %d and %d applied; %v", len(a.sent), len(b.sent), a.applied, b.applied, net.got)
	}
}

// TestEveryOrderOfArrivalEndsAlike holds any changes of a user against a side that gets
// them in another order.
func TestEveryOrderOfArrivalEndsAlike(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.1", "MAP-SYNC.5")
	a := newSide(t, "semel")
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		few := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) datasync.Change {
			c := change(user(""), rapid.Int64Range(1, 3).Draw(rt, "version"), start.Add(time.Duration(rapid.IntRange(0, 2).Draw(rt, "ms"))*time.Millisecond),
				fmt.Sprint(rapid.IntRange(0, 2).Draw(rt, "content")))
			c.Origin = rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "origin")
			return c
		}), 1, 6).Draw(rt, "changes")
		n++
		var first datasync.State
		for i := range 3 {
			ref := user(fmt.Sprint(n, ":", i))
			for _, c := range rapid.Permutation(few).Draw(rt, "order") {
				c.Ref = ref
				a.receive(c)
				if rapid.Bool().Draw(rt, "twice") {
					a.receive(c)
				}
			}
			st := a.get(ref, 0)
			if i == 0 {
				first = st
			}
			x, y := first.Changes[0], st.Changes[0]
			if first.Version != st.Version || !x.Time.Equal(y.Time) || x.Version != y.Version || x.Origin != y.Origin || string(x.Content) != string(y.Content) {
				rt.Fatalf("%+v and %+v", first, st)
			}
		}
	})
}
