package conflicts

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// node is a process on a store. Its operation pay keeps payloads, and card doesn't.
type node struct {
	*semel.Engine
	*Index
	stop func()
}

func start(t *testing.T, st semel.Store) *node {
	t.Helper()
	n := &node{Index: New(st)}
	var err error
	n.Engine, err = semel.New(st, &semel.Options{
		Operations: []semel.Operation{{Name: "pay", Window: time.Hour, KeepPayload: true, MaxResult: 1 << 20}, {Name: "card"}},
		Events:     &semel.Events{Decided: n.Decided, Purged: n.Purged},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { n.Index.Run(ctx) })
	n.stop = func() { cancel(); work.Wait() }
	return n
}

// deliver delivers a call and returns the record.
func (n *node) deliver(t *testing.T, operation, tenant, key, payload string) semel.Record {
	t.Helper()
	fp, err := semel.FingerprintJSON([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(payload)
	call := semel.Call{Tenant: tenant, Principal: "p", Operation: operation, Key: key, Fingerprint: fp, Payload: body}
	ans, err := n.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{Data: []byte("paid")}, nil
	})
	if err != nil && !errors.Is(err, semel.ErrConflict) {
		t.Fatal(err)
	}
	clear(body) // the door uses its memory again
	return *ans.Record
}

func (n *node) list(t *testing.T, tenant *string) []Conflict {
	t.Helper()
	list, err := n.List(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// pass lets virtual time pass, and what is due be done.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestConflictsOfAllNodesSurviveThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		a, b := start(t, st), start(t, st)
		a.deliver(t, "pay", "acme", "k1", `{"amount":1}`)
		for range 2 {
			a.deliver(t, "pay", "acme", "k1", `{"amount":2}`)
		}
		b.deliver(t, "pay", "acme", "k1", `{"amount":3}`)
		b.deliver(t, "card", "acme", "k2", `{"amount":1}`)
		b.deliver(t, "card", "acme", "k2", `{"amount":1}`) // a duplicate is no conflict
		b.deliver(t, "card", "acme", "k2", `{"amount":4}`)
		a.stop()
		b.stop()
		c := start(t, st)
		defer c.stop()
		list := c.list(t, nil)
		count := map[string]int64{}
		for _, one := range list {
			count[one.ID.Operation+" "+one.ID.Key] = one.Decisions[semel.Conflict]
			if len(one.Principals) != 1 || one.Principals[0] != "p" || one.First == 0 || one.Last < one.First {
				t.Errorf("%+v", one)
			}
		}
		if len(list) != 2 || count["pay k1"] != 3 || count["card k2"] != 1 {
			t.Errorf("listed: %v", count)
		}
		if other := "umbrella"; len(c.list(t, &other)) != 0 {
			t.Error("another tenant sees them")
		}
		rec := c.deliver(t, "pay", "acme", "k1", `{"amount":1}`)
		refused, err := c.Refused(t.Context(), &rec)
		if err != nil || len(refused) != 2 || string(refused[0].Payload) != `{"amount":2}` || refused[0].Count != 2 || string(refused[1].Payload) != `{"amount":3}` {
			t.Errorf("refused: %v, %v", refused, err)
		}
		rec = c.deliver(t, "card", "acme", "k2", `{"amount":1}`)
		if refused, err = c.Refused(t.Context(), &rec); err != nil || len(refused) != 1 || refused[0].Payload != nil || refused[0].Fingerprint.IsZero() {
			t.Errorf("of an operation that keeps no payloads: %v, %v", refused, err)
		}
		pass(KeptFor + time.Hour)
		st.Advance(KeptFor + time.Hour)
		if list := c.list(t, nil); len(list) != 0 {
			t.Errorf("a week later: %v", list)
		}
	})
}

func TestWhatIsReadIsNew(t *testing.T) {
	n := start(t, memstore.New())
	defer n.stop()
	n.deliver(t, "pay", "acme", "k", `1`)
	n.deliver(t, "pay", "acme", "k", `2`)
	if list := n.list(t, nil); len(list) != 1 {
		t.Errorf("what this node has just refused isn't listed: %v", list)
	}
}

// writes counts the writes of a store, and fails them.
type writes struct {
	*memstore.Store
	mu   sync.Mutex
	n    int
	fail bool
}

func (w *writes) Apply(ctx context.Context, wr store.Write) (*semel.Record, bool, error) {
	w.mu.Lock()
	w.n++
	fail := w.fail
	w.mu.Unlock()
	if fail {
		return nil, false, errors.New("the store is away")
	}
	return w.Store.Apply(ctx, wr)
}

func (w *writes) set(fail bool) (wrote int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote, w.n, w.fail = w.n, 0, fail
	return wrote
}

func TestNoDeliveryWaitsForTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &writes{Store: memstore.New()}
		n := start(t, st)
		defer n.stop()
		n.deliver(t, "pay", "acme", "k", `0`)
		st.set(false)
		for i := range 100 {
			n.deliver(t, "pay", "acme", "k", strconv.Itoa(i+1))
		}
		if wrote := st.set(false); wrote != 0 {
			t.Errorf("100 conflicts made %d writes", wrote)
		}
		pass(behind.Pause)
		if wrote := st.set(true); wrote != 2 {
			t.Errorf("noting them took %d writes", wrote)
		}
		n.deliver(t, "pay", "acme", "k", `-1`)
		pass(behind.Pause)
		st.set(false)
		n.deliver(t, "pay", "acme", "k", `-2`)
		if got := n.list(t, nil)[0].Decisions[semel.Conflict]; got != 101 {
			t.Errorf("%d conflicts are listed after a failing store lost one of 102", got)
		}
	})
}

func TestRefusedPayloadsGoWithTheirRecord(t *testing.T) {
	n := start(t, memstore.New())
	defer n.stop()
	rec := n.deliver(t, "pay", "acme", "k", `{"card":1}`)
	n.deliver(t, "pay", "acme", "k", `{"card":2}`)
	if refused, err := n.Refused(t.Context(), &rec); err != nil || len(refused) != 1 {
		t.Fatal(refused, err)
	}
	if err := n.Purge(t.Context(), rec.ID, semel.Removal{Reason: "asked for"}); err != nil {
		t.Fatal(err)
	}
	n.Payloads.Flush(t.Context())
	value, err := store.NewCell(n.Internal().Store(), store.RefusedOf(rec.ID)).Load(t.Context())
	if err != nil || !value.Revision.IsZero() {
		t.Errorf("after the purge: %s, %v", value.Data, err)
	}
	again := n.deliver(t, "pay", "acme", "k", `{"card":3}`)
	if refused, err := n.Refused(t.Context(), &again); err != nil || len(refused) != 0 {
		t.Errorf("the next record of the key: %v, %v", refused, err)
	}
}

func TestMemoryAndCellsAreBounded(t *testing.T) {
	st := memstore.New()
	x := New(st)
	refuse := func(tenant, key string, payload []byte, at int64) semel.ID {
		id := semel.ID{Tenant: tenant, Operation: "pay", Key: key}
		fp, _ := semel.FingerprintJSON([]byte(strconv.FormatInt(at, 10)))
		x.Decided(semel.Decided{ID: id, Decision: semel.Conflict, At: time.Now(), Presented: &semel.Presented{Principal: "p", Fingerprint: fp, Payload: payload}})
		return id
	}
	large := bytes.Repeat([]byte("x"), MaxPayload)
	for n := range 200 {
		refuse("acme", "k"+strconv.Itoa(n), large, int64(n))
	}
	inMemory := func(key string) (list []Presented) {
		x.Payloads.Look(semel.ID{Tenant: "acme", Operation: "pay", Key: key}, func(p *[]Presented) { list = *p })
		return list
	}
	kept := 0
	for n := range 200 {
		for _, p := range inMemory("k" + strconv.Itoa(n)) {
			kept += len(p.Payload)
		}
	}
	if kept > maxFreshBytes || kept < maxFreshBytes-2*MaxPayload {
		t.Errorf("%d bytes of payloads are in memory", kept)
	}
	for n := range int64(10) {
		refuse("acme", "k0", large, 1000+n)
	}
	var payloads int
	for _, p := range inMemory("k0") {
		payloads += len(p.Payload)
	}
	if got := len(inMemory("k0")); got != MaxPresented || payloads > 2*MaxPayload {
		t.Errorf("%d payloads of one record, %d bytes", got, payloads)
	}
	refuse("small", "only", nil, 1)
	for n := range 2 * maxFresh {
		refuse("acme", "f"+strconv.Itoa(n), nil, int64(n))
	}
	keys := 0
	for n := range shards {
		x.Listed.Look(n, func(some *news) { keys += len(some.conflicts) })
	}
	if keys != maxFresh {
		t.Errorf("%d keys are in memory", keys)
	}
	list, err := x.List(t.Context(), nil)
	if err != nil || len(list) > shards*maxListed || len(list) < shards*maxListed/2 {
		t.Errorf("%d keys are listed, %v", len(list), err)
	}
	small := "small"
	if list, err = x.List(t.Context(), &small); err != nil || len(list) != 1 {
		t.Errorf("a tenant with one conflict was pushed out by one with many: %v, %v", list, err)
	}
}

// refuse notes a refused payload of a size, under a fingerprint of its own.
func (x *Index) refuse(id semel.ID, who string, n, size int, charge func(int64) bool) {
	fp, _ := semel.FingerprintJSON([]byte(strconv.Itoa(n)))
	x.Decided(semel.Decided{ID: id, Decision: semel.Conflict, At: time.Now(), Presented: &semel.Presented{
		Principal: who, Fingerprint: fp, Payload: bytes.Repeat([]byte("x"), size), Charge: charge,
	}})
}

// kept is how many payloads are kept for a record, and how many were refused.
func (n *node) kept(t *testing.T, rec *semel.Record) (kept, refused int) {
	t.Helper()
	list, err := n.Refused(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if list[i].Payload != nil {
			kept++
		}
	}
	return kept, len(list)
}

func TestRefusedPayloadsCostTheirSender(t *testing.T) {
	n := start(t, memstore.New())
	defer n.stop()
	rec := n.deliver(t, "pay", "acme", "k", `0`)
	left := int64(250)
	charge := func(bytes int64) bool {
		if bytes > left {
			return false
		}
		left -= bytes
		return true
	}
	for i := range 4 {
		n.refuse(rec.ID, "p", i, 100, charge)
	}
	if kept, refused := n.kept(t, &rec); kept != 2 || refused != 4 || left != 50 {
		t.Errorf("%d of %d payloads are kept, %d bytes of the quota are left", kept, refused, left)
	}
	for i := range 4 {
		n.refuse(rec.ID, "p", i, 100, charge) // again
	}
	if kept, _ := n.kept(t, &rec); kept != 2 || left != 50 {
		t.Errorf("after the same ones: %d are kept, %d bytes are left", kept, left)
	}
}

func TestOnePayloadOfARecordIsKeptForStrangers(t *testing.T) {
	n := start(t, memstore.New())
	defer n.stop()
	n.Unverified = func(who string) bool { return who != "p" }
	rec := n.deliver(t, "pay", "acme", "k", `0`)
	n.refuse(rec.ID, "p", 0, 10, nil)
	for i := range 9 {
		n.refuse(rec.ID, "made up "+strconv.Itoa(i), i+1, 10, nil)
		n.Payloads.Flush(t.Context())
	}
	list, err := n.Refused(t.Context(), &rec)
	if err != nil || len(list) != 2 || list[0].Principal != "p" || list[1].Principal != "made up 8" {
		t.Errorf("kept: %v, %v", list, err)
	}
}

func TestPayloadsOfATenantAreBounded(t *testing.T) {
	var s spent
	day := (24 * time.Hour).Milliseconds()
	if !s.spend("acme", MaxTenant, 0) || s.spend("acme", 1, day-1) || !s.spend("other", 1, day-1) || !s.spend("acme", 1, day) {
		t.Error("a tenant may have MaxTenant a day kept")
	}
	n := start(t, memstore.New())
	defer n.stop()
	rec := n.deliver(t, "pay", "acme", "k", `0`)
	n.spent.spend("acme", MaxTenant-15, time.Now().UnixMilli())
	n.refuse(rec.ID, "p", 1, 10, nil)
	n.refuse(rec.ID, "p", 2, 10, nil)
	if kept, refused := n.kept(t, &rec); kept != 1 || refused != 2 {
		t.Errorf("%d of %d payloads are kept", kept, refused)
	}
}

// Whoever makes up credentials can't push the conflicts of a tenant's own callers out.
func TestOtherCallersPushNoConflictOut(t *testing.T) {
	list := []Conflict{{ID: semel.ID{Key: "own"}, Decisions: map[semel.Decision]int64{semel.Conflict: 1}, Last: 1}}
	for i := range int64(3) {
		list = append(list, Conflict{ID: semel.ID{Key: strconv.FormatInt(i, 10)}, Decisions: map[semel.Decision]int64{semel.OtherCaller: 9}, Last: 2 + i})
	}
	for len(list) > 1 {
		list = dropOne(list)
	}
	if list[0].ID.Key != "own" {
		t.Errorf("left: %v", list)
	}
}

// What was erased goes from memory and from the list of all nodes, and nothing that came after it.
func TestErasedConflictsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		a, b := start(t, st), start(t, st)
		defer a.stop()
		defer b.stop()
		for _, key := range []string{"anna@example.com", "other"} {
			rec := a.deliver(t, "pay", "acme", key, `{"amount":1}`)
			a.deliver(t, "pay", "acme", key, `{"amount":2}`)
			if len(a.list(t, nil)) == 0 {
				t.Fatal("nothing is listed")
			}
			b.refuse(rec.ID, "p", 3, 10, nil) // isn't written yet
		}
		now := time.Now()
		ev := semel.Erased{Includes: func(id semel.ID, at time.Time) bool { return id.Key == "anna@example.com" && !at.After(now) }}
		a.Erased(ev)
		b.Erased(ev)
		pass(behind.Pause)
		list := a.list(t, nil)
		if len(list) != 1 || list[0].ID.Key != "other" || list[0].Decisions[semel.Conflict] != 2 {
			t.Errorf("listed: %+v", list)
		}
		rec := a.deliver(t, "pay", "acme", "anna@example.com", `{"amount":1}`)
		if refused, err := a.Refused(t.Context(), &rec); err != nil || len(refused) != 0 {
			t.Errorf("what waited was written: %v, %v", refused, err)
		}
		pass(time.Second)
		a.deliver(t, "pay", "acme", "anna@example.com", `{"amount":3}`)
		if list := a.list(t, nil); len(list) != 2 {
			t.Errorf("a new conflict isn't listed: %+v", list)
		}
	})
}
