package datasync_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clocked is a store whose clock a test sets.
type clocked struct {
	*memstore.Store
	now time.Time
}

func (s *clocked) Now(context.Context) (store.Instant, error) { return store.InstantOf(s.now), nil }

var start = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// row is what a side's database has of an entity or a version.
type row struct {
	sequence int64
	changes  []datasync.Change
}

// place names a row.
type place struct {
	entity, id string
	version    int64
}

// side is one of the two systems.
type side struct {
	*datasync.Replica
	t      *testing.T
	origin string
	store  *clocked
	faults *faultstore.Control
	engine *semel.Engine
	rows   map[place]row

	applied int               // calls of Apply
	sent    []datasync.Change // changes that were given to Send
	// deliver is what Send does.
	deliver func(c datasync.Change) error
	applies func(s datasync.State) error // a fault, if set
}

func newSide(t *testing.T, origin string) *side {
	s := &side{t: t, origin: origin, store: &clocked{memstore.New(), start}, rows: map[place]row{}}
	st, faults := faultstore.New(s.store, nil)
	s.faults = faults
	var err error
	s.engine, err = semel.New(st, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.engine.Close(context.Background()) })
	s.Replica = s.replica()
	return s
}

// replica is one of a further node of this side.
func (s *side) replica() *datasync.Replica {
	r, err := datasync.New(s.engine, datasync.Options{
		Origin: s.origin,
		Apply: func(_ context.Context, st datasync.State) error {
			s.applied++
			if s.applies != nil {
				if err := s.applies(st); err != nil {
					return err
				}
			}
			at := place{st.Entity, st.ID, st.Version}
			if st.Entity == "user" {
				at.version = 0
			}
			if s.rows[at].sequence < st.Sequence {
				s.rows[at] = row{st.Sequence, st.Changes}
			}
			return nil
		},
		Send: func(_ context.Context, c datasync.Change) error {
			if c.Origin != s.origin {
				s.t.Errorf("%s sends a change of %s on", s.origin, c.Origin)
			}
			s.sent = append(s.sent, c)
			if s.deliver == nil {
				return nil
			}
			return s.deliver(c)
		},
	})
	must(s.t, err)
	return r
}

// due are the messages that a dispatcher would deliver, with their records.
func (s *side) due() []semel.Record {
	page, err := s.store.Due(s.t.Context(), store.DueQuery{Until: store.InstantOf(s.store.now.Add(time.Hour)), Limit: 10_000})
	must(s.t, err)
	return slices.DeleteFunc(page.Records, func(rec semel.Record) bool {
		return len(rec.Outbox) != 1 || rec.Outbox[0].State != store.MessagePending || rec.Outbox[0].Destination != s.Destination()
	})
}

// work delivers one message, and unless the dispatcher crashes in between, settles it.
func (s *side) work(rec *semel.Record, crash bool) {
	m := rec.Outbox[0]
	if err := s.Work(s.t.Context(), m.Payload); err != nil || crash {
		return
	}
	_, err := s.engine.Internal().SettleMessage(s.t.Context(), rec.ID, m.ID, store.MessageFinding{State: store.MessageDelivered})
	if !errors.Is(err, semel.ErrNotFound) { // a later state has replaced it
		must(s.t, err)
	}
}

// workAll delivers everything that is due.
func (s *side) workAll() {
	for range 100 {
		list := s.due()
		if len(list) == 0 {
			return
		}
		for i := range list {
			s.work(&list[i], false)
		}
	}
	s.t.Fatal("it never ends")
}

func (s *side) put(ref datasync.Ref, version int64, content string) datasync.State {
	s.t.Helper()
	st, err := s.Put(s.t.Context(), ref, version, json.RawMessage(content))
	must(s.t, err)
	return st
}

func (s *side) receive(c datasync.Change) datasync.Outcome {
	s.t.Helper()
	out, err := s.Receive(s.t.Context(), c)
	must(s.t, err)
	return out
}

func (s *side) get(ref datasync.Ref, version int64) datasync.State {
	s.t.Helper()
	st, err := s.Get(s.t.Context(), ref, version)
	must(s.t, err)
	return st
}

func user(id string) datasync.Ref    { return datasync.Ref{Entity: "user", ID: id} }
func consent(id string) datasync.Ref { return datasync.Ref{Entity: "consent", ID: id} }
func product(id string) datasync.Ref { return datasync.Ref{Entity: "product", ID: id} }

// change is one of the other side.
func change(ref datasync.Ref, version int64, at time.Time, content string) datasync.Change {
	return datasync.Change{Ref: ref, Version: version, Time: at, Origin: "shopify", Content: json.RawMessage(content)}
}

// contents are those of changes, sorted.
func contents(changes []datasync.Change) string {
	var list [][]byte
	for _, c := range changes {
		list = append(list, c.Content)
	}
	slices.SortFunc(list, bytes.Compare)
	return string(bytes.Join(list, []byte(" | ")))
}

// network carries encoded changes between two sides: some are lost, doubled or
// overtaken, and some come back.
type network struct {
	rand   *rand.Rand
	faulty bool
	queue  []packet
	got    map[datasync.Outcome]int
}

type packet struct {
	to   *side
	text []byte
	back *side // from whom it comes, if it is to come back
}

var errLost = errors.New("no answer")

func (n *network) chance(percent int) bool { return n.faulty && n.rand.IntN(100) < percent }

// connect makes from send to the other side.
func (n *network) connect(from, to *side) {
	from.deliver = func(c datasync.Change) error {
		text, err := c.Encode()
		must(from.t, err)
		if n.chance(15) {
			return errLost // with the change
		}
		n.queue = append(n.queue, packet{to, text, from})
		if n.chance(15) {
			return errLost // the answer only
		}
		return nil
	}
}

// step delivers any of the changes that are on their way.
func (n *network) step() {
	if len(n.queue) == 0 {
		return
	}
	i := n.rand.IntN(len(n.queue))
	p := n.queue[i]
	if !n.chance(10) { // otherwise it comes again
		n.queue = slices.Delete(n.queue, i, i+1)
	}
	c, err := datasync.ParseChange("", p.text)
	must(p.to.t, err)
	n.got[p.to.receive(c)]++
	if p.back != nil && n.rand.IntN(100) < 30 {
		n.queue = append(n.queue, packet{p.back, p.text, nil}) // as a webhook about it would
	}
}
