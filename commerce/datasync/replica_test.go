package datasync_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

func TestOptimisticVersions(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.1")
	a := newSide(t, "semel")
	refused := func(t *testing.T, ref datasync.Ref, version int64, content string) {
		t.Helper()
		if _, err := a.Put(t.Context(), ref, version, json.RawMessage(content)); !errors.Is(err, datasync.ErrVersion) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	refused(t, user("u"), 2, `{}`)
	first := a.put(user("u"), 1, `{"name":"Ann"}`)
	t.Run("a version that was taken or skipped is refused, and changes nothing", func(t *testing.T) {
		for _, v := range []int64{1, 3} {
			refused(t, user("u"), v, `{"name":"Bob"}`)
		}
		if st := a.get(user("u"), 0); contents(st.Changes) != `{"name":"Ann"}` || st.Sequence != first.Sequence {
			t.Errorf("%+v", st)
		}
	})
	t.Run("the same again is recognised, however it is written", func(t *testing.T) {
		if st := a.put(user("u"), 1, ` { "name" : "\u0041nn" }`); st.Sequence != first.Sequence || st.Version != 1 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("a change from the other side takes a version, even if it loses", func(t *testing.T) {
		if out := a.receive(change(user("u"), 5, start.Add(-time.Hour), `{"name":"Cid"}`)); out != datasync.Superseded {
			t.Fatal(out)
		}
		refused(t, user("u"), 2, `{"name":"Dan"}`)
		a.put(user("u"), 6, `{"name":"Dan"}`)
	})
	t.Run("an edit of what another clock has dated is later than that", func(t *testing.T) {
		seen := start.Add(50 * time.Second)
		if out := a.receive(change(user("u"), 7, seen, `{"name":"Eve"}`)); out != datasync.Applied {
			t.Fatal(out)
		}
		if st := a.put(user("u"), 8, `{"name":"Fay"}`); st.Changes[0].Time.Sub(seen) != time.Millisecond {
			t.Errorf("%v after %v", st.Changes[0].Time, seen)
		}
	})
	t.Run("of those who make one version at once on several nodes one succeeds", func(t *testing.T) {
		a.store.now = start.Add(time.Hour)
		nodes := []*datasync.Replica{a.replica(), a.replica(), a.replica()}
		for version := int64(9); version < 30; version++ {
			var made atomic.Int64
			var wg sync.WaitGroup
			for i := range 9 {
				wg.Go(func() {
					_, err := nodes[i%3].Put(t.Context(), user("u"), version, json.RawMessage(fmt.Sprint(i)))
					if err == nil {
						made.Add(1)
					} else if !errors.Is(err, datasync.ErrVersion) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := made.Load(); n != 1 {
				t.Fatalf("%d have made version %d", n, version)
			}
		}
	})
}

func TestTheLastWriteWins(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.1", "MAP-SYNC.5")
	with := func(version int64, ms int, origin, content string) datasync.Change {
		c := change(user("u"), version, start.Add(time.Duration(ms)*time.Millisecond), content)
		c.Origin = origin
		return c
	}
	for name, c := range map[string]struct{ loses, wins datasync.Change }{
		"by its time, whatever its version is":     {with(9, 0, "z", `1`), with(1, 1, "a", `2`)},
		"by its version, if the times are equal":   {with(1, 0, "z", `1`), with(2, 0, "a", `2`)},
		"by its origin, if both are equal":         {with(1, 0, "a", `1`), with(1, 0, "z", `2`)},
		"by the SHA-256 of its content in the end": {with(1, 0, "a", `"a"`), with(1, 0, "a", `"b"`)}, // ac8d8342… and c100f95c…
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][]datasync.Change{{c.loses, c.wins}, {c.wins, c.loses}} {
				a := newSide(t, "semel")
				for _, c := range order {
					a.receive(c)
				}
				if st := a.get(user("u"), 0); contents(st.Changes) != string(c.wins.Content) || st.Version != max(c.wins.Version, c.loses.Version) {
					t.Errorf("%+v", st)
				}
				a.workAll()
				if got := a.rows[place{"user", "u", 0}]; contents(got.changes) != string(c.wins.Content) {
					t.Errorf("the database has %+v", got)
				}
			}
		})
	}
}

func TestHistoriesOnlyGrow(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.2")
	a := newSide(t, "semel")
	history := func() string {
		var list []string
		for st, err := range a.History(t.Context(), consent("u")) {
			must(t, err)
			list = append(list, contents(st.Changes))
		}
		return strings.Join(list, ", ")
	}
	a.put(consent("u"), 1, `"yes"`)
	if out := a.receive(change(consent("u"), 3, start, `"yes, again"`)); out != datasync.Applied {
		t.Fatal(out)
	}
	if got := history(); got != `"yes"` {
		t.Errorf("with a gap: %s", got)
	}
	a.receive(change(consent("u"), 2, start.Add(-time.Hour), `"no"`))
	const want = `"yes", "no", "yes, again"`
	if got := history(); got != want {
		t.Errorf("%s", got)
	}
	t.Run("the same entry again is a duplicate", func(t *testing.T) {
		if out := a.receive(change(consent("u"), 2, start.Add(time.Second), ` "no"`)); out != datasync.Duplicate || history() != want {
			t.Errorf("%s: %s", out, history())
		}
		a.put(consent("u"), 1, `"yes"`)
	})
	t.Run("this side can't write over an entry", func(t *testing.T) {
		if _, err := a.Put(t.Context(), consent("u"), 2, json.RawMessage(`"yes"`)); !errors.Is(err, datasync.ErrVersion) || history() != want {
			t.Errorf("%v: %s", err, history())
		}
	})
	t.Run("other content is kept beside the first, and told", func(t *testing.T) {
		a.workAll()
		a.applied = 0
		if out := a.receive(change(consent("u"), 2, start.Add(time.Second), `"maybe"`)); out != datasync.Contested {
			t.Fatal(out)
		}
		st := a.get(consent("u"), 2)
		if !st.Contested() || string(st.Changes[0].Content) != `"no"` || string(st.Changes[1].Content) != `"maybe"` {
			t.Errorf("%+v", st)
		}
		a.workAll()
		if got := a.rows[place{"consent", "u", 2}]; a.applied != 1 || contents(got.changes) != `"maybe" | "no"` {
			t.Errorf("applied %d times: %+v", a.applied, got)
		}
		if out := a.receive(change(consent("u"), 2, start, `"maybe"`)); out != datasync.Duplicate {
			t.Error(out)
		}
	})
	t.Run("too many contents are refused, and none is dropped", func(t *testing.T) {
		for i := range 6 {
			a.receive(change(consent("u"), 2, start, fmt.Sprint(i)))
		}
		if _, err := a.Receive(t.Context(), change(consent("u"), 2, start, `"one more"`)); !errors.Is(err, datasync.ErrFull) {
			t.Error(err)
		}
		if st := a.get(consent("u"), 2); len(st.Changes) != 8 || string(st.Changes[0].Content) != `"no"` {
			t.Errorf("%+v", st)
		}
	})
}

func TestSnapshotsNeverChange(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.3")
	a := newSide(t, "semel")
	const first = `{"price":"9.99"}`
	a.receive(change(product("prod_456"), 3, start, first))
	a.receive(change(product("prod_456"), 4, start, `{"price":"12.00"}`))
	a.receive(change(product("prod_456"), 3, start.Add(time.Minute), `{"price":"1.00"}`)) // later, and contested
	_, err := a.Put(t.Context(), product("prod_456"), 3, json.RawMessage(`{"price":"2.00"}`))
	if !errors.Is(err, datasync.ErrVersion) {
		t.Error(err)
	}
	if st := a.get(product("prod_456"), 3); string(st.Changes[0].Content) != first {
		t.Errorf("%+v", st)
	}
	rec, err := a.store.Get(t.Context(), semel.ID{Operation: "semel.datasync/datasync", Key: "sync:product:prod_456:3"})
	must(t, err)
	if rec.ExpiresAt != 0 {
		t.Errorf("it is forgotten at %v", rec.ExpiresAt)
	}
	if _, err := a.Get(t.Context(), product("prod_456"), 5); !errors.Is(err, semel.ErrNotFound) {
		t.Error(err)
	}
}

func TestKeysAreThoseOfTheMap(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.3")
	a := newSide(t, "semel")
	const id = "prod 4:56~é"
	format, err := commerce.SyncProduct.Key(commerce.Values{"upid": id, "version": "3"})
	must(t, err)
	c := change(product(id), 3, start, `1`)
	a.receive(c)
	if _, err := a.store.Get(t.Context(), semel.ID{Operation: "semel.datasync/datasync", Key: format.Text}); err != nil {
		t.Errorf("%s: %v", format.Text, err)
	}
	if format, err = commerce.Sync.Key(commerce.Values{"entity": "product", "entity_id": id, "version": "3"}); err != nil || c.Key() != format.Text+":shopify" {
		t.Errorf("%s is not %s of shopify: %v", c.Key(), format.Text, err)
	}
}

func TestAnEchoDoesNothing(t *testing.T) {
	clause.Proves(t, "MAP-SYNC.4")
	a := newSide(t, "semel")
	for _, ref := range []datasync.Ref{user("u"), consent("u"), product("p")} {
		a.put(ref, 1, `"ours"`)
	}
	a.workAll()
	sent, applied, stored := len(a.sent), a.applied, a.store.Len()
	for _, c := range a.sent {
		for _, content := range []string{`"ours"`, `"changed on the way"`} {
			c.Content, c.Time = json.RawMessage(content), c.Time.Add(time.Second)
			if out := a.receive(c); out != datasync.Echo {
				t.Errorf("%+v is %s", c, out)
			}
		}
	}
	a.receive(datasync.Change{Ref: user("never heard of"), Version: 1, Time: start, Origin: "semel", Content: json.RawMessage(`1`)})
	a.workAll()
	if len(a.sent) != sent || a.applied != applied || a.store.Len() != stored || sent != 3 {
		t.Errorf("%d, %d and %d were sent, applied and stored; before %d, %d and %d", len(a.sent), a.applied, a.store.Len(), sent, applied, stored)
	}
	if st := a.get(user("u"), 0); contents(st.Changes) != `"ours"` {
		t.Errorf("%+v", st)
	}
}

func TestNothingIsLost(t *testing.T) {
	t.Run("if the result of a write is unknown", func(t *testing.T) {
		for _, form := range []faultstore.Form{faultstore.Applied, faultstore.NotApplied} {
			a := newSide(t, "semel")
			for _, ref := range []datasync.Ref{user("u"), consent("u")} {
				a.faults.Next(faultstore.Apply, form, 1)
				if _, err := a.Put(t.Context(), ref, 1, json.RawMessage(`1`)); !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
					t.Fatal(err)
				}
				a.put(ref, 1, `1`)
				c := change(ref, 2, start.Add(time.Second), `2`)
				a.faults.Next(faultstore.Apply, form, 1)
				if _, err := a.Receive(t.Context(), c); err == nil {
					t.Fatal("no error")
				}
				a.receive(c)
			}
			a.workAll()
			// The user's first version has been replaced before it was sent.
			if len(a.sent) != 1 || a.applied != 3 || len(a.rows) != 3 {
				t.Errorf("%s: %d were sent, %d applied", form, len(a.sent), a.applied)
			}
		}
	})
	t.Run("if the database or the other side fails", func(t *testing.T) {
		a := newSide(t, "semel")
		broken := errors.New("broken")
		a.put(user("u"), 1, `1`)
		a.applies = func(datasync.State) error { return broken }
		list := a.due()
		a.work(&list[0], false)
		a.applies = nil
		a.deliver = func(datasync.Change) error { return broken }
		a.work(&list[0], false)
		a.deliver = nil
		if len(a.due()) != 1 {
			t.Fatal("its message is gone")
		}
		a.workAll()
		if len(a.sent) != 2 || a.applied != 3 || a.rows[place{"user", "u", 0}].sequence != 1 {
			t.Errorf("%d were sent, %d applied", len(a.sent), a.applied)
		}
	})
	for _, parked := range []bool{false, true} {
		t.Run(fmt.Sprintf("if a change comes that loses before a state is sent; parked: %v", parked), func(t *testing.T) {
			a := newSide(t, "semel")
			a.put(user("u"), 1, `1`)
			if parked {
				rec := a.due()[0]
				_, err := a.engine.Internal().SettleMessage(t.Context(), rec.ID, rec.Outbox[0].ID, store.MessageFinding{State: store.MessageParked})
				must(t, err)
			}
			a.receive(change(user("u"), 2, start.Add(-time.Second), `2`))
			a.workAll()
			if len(a.sent) != 1 || a.applied != 1 {
				t.Errorf("%d were sent, %d applied", len(a.sent), a.applied)
			}
		})
	}
	t.Run("if another content of a version comes before ours is sent, and not sent again after", func(t *testing.T) {
		for _, before := range []bool{true, false} {
			a := newSide(t, "semel")
			a.put(consent("u"), 1, `"yes"`)
			if !before {
				a.workAll()
			}
			a.receive(change(consent("u"), 1, start, `"no"`))
			a.workAll()
			if len(a.sent) != 1 || contents(a.rows[place{"consent", "u", 1}].changes) != `"no" | "yes"` {
				t.Errorf("before %v: %d were sent; %+v", before, len(a.sent), a.rows)
			}
		}
	})
}

func TestALateStateIsNotApplied(t *testing.T) {
	a := newSide(t, "semel")
	a.put(user("u"), 1, `1`)
	first := a.due()[0]
	a.put(user("u"), 2, `2`)
	must(t, a.Work(t.Context(), first.Outbox[0].Payload))
	if a.applied != 0 {
		t.Error("a state was applied that another has replaced")
	}
	// One that is being applied as it is replaced comes after the next, and is told apart by
	// its sequence.
	second := a.due()[0]
	a.applies = func(st datasync.State) error {
		if a.applies = nil; st.Sequence == 2 {
			a.put(user("u"), 3, `3`)
			a.workAll()
		}
		return nil
	}
	must(t, a.Work(t.Context(), second.Outbox[0].Payload))
	if got := a.rows[place{"user", "u", 0}]; contents(got.changes) != `3` || got.sequence != 3 {
		t.Errorf("%+v", got)
	}
}

func TestClocksThatAreWrong(t *testing.T) {
	a := newSide(t, "semel")
	a.put(user("u"), 1, `"ours"`)
	for _, ref := range []datasync.Ref{user("u"), consent("u")} {
		for _, at := range []time.Time{start.Add(time.Minute + time.Millisecond), start.Add(72 * time.Hour), time.Date(7026, 1, 1, 0, 0, 0, 0, time.UTC)} {
			_, err := a.Receive(t.Context(), change(ref, 2, at, `"days ahead"`))
			if !errors.Is(err, datasync.ErrAhead) || !strings.Contains(err.Error(), "more than 1m0s") {
				t.Errorf("%v: %v", at, err)
			}
		}
	}
	if out := a.receive(change(user("u"), 2, start.Add(time.Minute), `"a minute ahead"`)); out != datasync.Applied {
		t.Error(out)
	}
	if out := a.receive(change(user("u"), 3, start.Add(-72*time.Hour), `"days behind"`)); out != datasync.Superseded {
		t.Error(out)
	}
}

func TestRefusals(t *testing.T) {
	a := newSide(t, "semel")
	long := strings.Repeat("x", 257)
	good := change(user("u"), 1, start, `1`)
	for name, spoil := range map[string]func(c *datasync.Change){
		"version zero":                 func(c *datasync.Change) { c.Version = 0 },
		"a negative version":           func(c *datasync.Change) { c.Version = -1 },
		"a huge version":               func(c *datasync.Change) { c.Version = datasync.MaxVersion + 1 },
		"no origin":                    func(c *datasync.Change) { c.Origin = "" },
		"an endless origin":            func(c *datasync.Change) { c.Origin = long },
		"no time":                      func(c *datasync.Change) { c.Time = time.Time{} },
		"the year 1969":                func(c *datasync.Change) { c.Time = time.Unix(-1, 0) },
		"a time that others round":     func(c *datasync.Change) { c.Time = start.Add(time.Microsecond) },
		"no content":                   func(c *datasync.Change) { c.Content = nil },
		"content that isn't JSON":      func(c *datasync.Change) { c.Content = json.RawMessage(`{`) },
		"a member that is there twice": func(c *datasync.Change) { c.Content = json.RawMessage(`{"a":1,"a":2}`) },
		"endless content": func(c *datasync.Change) {
			c.Content = json.RawMessage(`"` + strings.Repeat("x", datasync.MaxContent) + `"`)
		},
		"an entity that nobody knows": func(c *datasync.Change) { c.Entity = "User" },
		"no id":                       func(c *datasync.Change) { c.ID = "" },
		"an endless id":               func(c *datasync.Change) { c.ID = long },
		"a tenant that can't be kept": func(c *datasync.Change) { c.Tenant = "\xff" },
	} {
		c := good
		spoil(&c)
		if out, err := a.Receive(t.Context(), c); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
	if a.store.Len() != 0 {
		t.Errorf("%d records are stored", a.store.Len())
	}
	t.Run("the last version is the last", func(t *testing.T) {
		a.receive(change(user("u"), datasync.MaxVersion, start, `1`))
		if _, err := a.Put(t.Context(), user("u"), datasync.MaxVersion+1, json.RawMessage(`2`)); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Error(err)
		}
	})
	t.Run("a message that isn't a replica's is an error", func(t *testing.T) {
		if err := a.Work(t.Context(), []byte("{")); err == nil {
			t.Error("no error")
		}
	})
	t.Run("options are checked", func(t *testing.T) {
		e, err := semel.New(memstore.New(), nil)
		must(t, err)
		apply := func(context.Context, datasync.State) error { return nil }
		send := func(context.Context, datasync.Change) error { return nil }
		for i, opts := range []datasync.Options{
			{Apply: apply, Send: send}, {Origin: "a", Send: send}, {Origin: "a", Apply: apply},
			{Origin: "a", Apply: apply, Send: send, MaxAhead: -1}, {Origin: long, Apply: apply, Send: send}, {Origin: "a", Apply: apply, Send: send, Name: long},
			{Origin: "a", Apply: apply, Send: send, Entities: map[string]datasync.Rule{"user": "newest"}},
			{Origin: "a", Apply: apply, Send: send, Entities: map[string]datasync.Rule{"": datasync.AppendOnly}},
		} {
			if r, err := datasync.New(e, opts); err == nil || r != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

func TestTenantsAreApart(t *testing.T) {
	a := newSide(t, "semel")
	mine, yours := user("u"), user("u")
	mine.Tenant, yours.Tenant = "mine", "yours"
	a.put(mine, 1, `"mine"`)
	if _, err := a.Get(t.Context(), yours, 0); !errors.Is(err, semel.ErrNotFound) {
		t.Error(err)
	}
	a.workAll()
	if len(a.sent) != 1 || a.sent[0].Tenant != "mine" {
		t.Errorf("%+v", a.sent)
	}
}
