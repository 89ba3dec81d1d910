// Package doortest tests whether a door is right. It delivers calls through the door so that
// they get every decision of the engine, and checks the replies: no decision may fail, run the
// call, or get another one's answer. Each answer must also reach the engine's Events.
//
// Your door's test opens it on the suite's engine and says how to deliver a call:
//
//	doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver { … }})
//
// [Codes] checks that every code has an answer, even codes that no delivery in a test can get.
package doortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// Door is a door under test.
type Door struct {
	// Open mounts the door on an engine that has no operations yet. The handler of its calls
	// runs work and returns work's error. The door ends with t.
	Open func(t *testing.T, e *semel.Engine, work func() error) Deliver
	// Witness makes the evidence log on a store, for a door with operations that demand
	// evidence. Optional.
	Witness func(t *testing.T, st semel.Store) semel.Witness
	// Differs has replies that the door's protocol requires instead of those in package door's
	// table.
	Differs map[semel.Code]Reply
	// NoAction says why the door's answers have no [Reply].Action: its protocol has no place for
	// one. Empty: they have.
	NoAction string
	// Never are decisions that no call of this door can get, with the reason for each.
	Never map[semel.Decision]string
}

// Deliver delivers a call under a key, always as the same caller and with the same payload,
// and returns the caller's reply.
type Deliver func(key string) Reply

// Reply is what a caller gets.
type Reply struct {
	// Status is the HTTP status; 0 for a door without HTTP, and then only Code is checked.
	Status int
	// Code is the door's own word for the refusal; empty for an outcome.
	Code string
	// Action is what the refusal tells a program to do next, by package door's table.
	Action store.Action
	// Body is the body of an outcome, without the parts that name the delivery. A replay must
	// have it byte for byte (CORE-SVC.3). Empty for a door without any.
	Body string
}

// ReplyTo returns the reply of a door that answers over HTTP, with problem documents with a
// member code (RFC 9457) as refusals.
func ReplyTo(t *testing.T, w *httptest.ResponseRecorder) Reply {
	t.Helper()
	reply := Reply{Status: w.Code}
	if w.Header().Get("Content-Type") != "application/problem+json" {
		reply.Body = w.Body.String()
		return reply
	}
	var p struct {
		Code, Title, Detail string
		Action              store.Action
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Title == "" || p.Detail == "" {
		t.Fatalf("%v: %s", err, w.Body)
	}
	reply.Code, reply.Action = p.Code, p.Action
	return reply
}

// scenario makes the next delivery get a decision.
type scenario struct {
	// options are the engine's.
	options semel.Options
	// between changes the record of the first delivery before the second one. Nil: the
	// store isn't touched.
	between func(rec *semel.Record)
	// other delivers the second time under another key.
	other bool
	// prepare is called with the engine before the second delivery. Optional.
	prepare func(ctx context.Context, e *semel.Engine) error
}

// Keys of the deliveries. They are UUIDv7, so that a call can come too late.
const (
	firstKey = "0190163d-8694-739b-aea5-966c26f8ad91"
	otherKey = "0190163d-8694-739b-aea5-966c26f8ad92"
)

// again has the scenarios for all decisions except Execute, which the first delivery gets.
var again = map[semel.Decision]scenario{
	semel.Replay:      {},
	semel.InFlight:    {between: unfinished},
	semel.Held:        {between: func(rec *semel.Record) { unfinished(rec); rec.Held, rec.HeldReason = true, "nobody knows" }},
	semel.Conflict:    {between: func(rec *semel.Record) { rec.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, []byte("another")) }},
	semel.OtherCaller: {between: func(rec *semel.Record) { rec.BoundTo = "another" }},
	semel.Superseded:  {between: func(rec *semel.Record) { rec.Mark = &store.Mark{Newest: 2} }},
	semel.OtherDoor:   {between: func(rec *semel.Record) { rec.Door = "another" }},
	semel.TooLate: {other: true, prepare: func(ctx context.Context, e *semel.Engine) error {
		_, err := e.Internal().NewEpoch(ctx)
		return err
	}},
	semel.Throttled: {other: true, options: semel.Options{Quotas: semel.Quotas{TenantRecords: 1, PrincipalRecords: 1}}},
}

// unfinished makes a record's attempt look unfinished.
func unfinished(rec *semel.Record) {
	var none store.Disposition
	rec.State, rec.Disposition, rec.Result = semel.Processing, none, semel.Result{}
	rec.EndedAt, rec.ExpiresAt = 0, 0
	rec.LeaseUntil = rec.UpdatedAt.Add(rec.Policy.Lease)
	rec.NextAt = rec.LeaseUntil
}

// Run provokes each refusal of [semel.Decisions] and a replay through the door, and checks the
// answers.
func Run(t *testing.T, d Door) {
	for _, decision := range semel.Decisions() {
		if decision == semel.Execute || decision == semel.SequenceGap {
			continue // every scenario begins with Execute; SequenceGap is for doors with numbers
		}
		t.Run(string(decision), func(t *testing.T) {
			if why := d.Never[decision]; why != "" {
				t.Logf("no call of this door is %s: %s", decision, why)
				return
			}
			s, ok := again[decision]
			if !ok {
				t.Fatal("this suite doesn't know how a call gets the decision")
			}
			if err := d.meets(t, decision, s); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("store unavailable", func(t *testing.T) {
		st, control := faultstore.New(memstore.New(), nil)
		deliver, ran, _ := d.open(t, st, semel.Options{})
		control.Cut(faultstore.NotApplied)
		if err := d.tells(deliver(firstKey), semel.CodeStoreUnavailable); err != nil {
			t.Error(err)
		}
		control.Heal()
		if n := ran.Load(); n != 0 {
			t.Errorf("the call ran %d times", n)
		}
	})
	t.Run("an outcome that can't be recorded is not told", func(t *testing.T) {
		st, control := faultstore.New(memstore.New(), nil)
		muted := d
		muted.Open = func(t *testing.T, e *semel.Engine, work func() error) Deliver {
			return d.Open(t, e, func() error {
				control.Cut(faultstore.NotApplied) // once the call has begun its work
				return work()
			})
		}
		deliver, ran, _ := muted.open(t, st, semel.Options{StoreTimeout: 50 * time.Millisecond})
		reply := deliver(firstKey)
		control.Heal()
		if ran.Load() == 1 && reply.Code == "" {
			t.Errorf("the caller is told %+v of an outcome that isn't recorded", reply)
		}
	})
	t.Run("closed", func(t *testing.T) {
		deliver, ran, e := d.open(t, memstore.New(), semel.Options{})
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.tells(deliver(firstKey), semel.CodeClosed); err != nil {
			t.Error(err)
		}
		if n := ran.Load(); n != 0 {
			t.Errorf("the call ran %d times", n)
		}
	})
}

// open opens the door on a store, and counts how often its calls run.
func (d *Door) open(t *testing.T, st semel.Store, opts semel.Options) (Deliver, *atomic.Int64, *semel.Engine) {
	t.Helper()
	if d.Witness != nil {
		opts.Witness = d.Witness(t, st)
	}
	e, err := semel.New(st, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	ran := new(atomic.Int64)
	return d.Open(t, e, func() error { ran.Add(1); return nil }), ran, e
}

// named checks that the record of a call has its door, its payload's fingerprint and its
// caller.
func named(ctx context.Context, st semel.Store, id semel.ID) error {
	rec, err := st.Get(ctx, id)
	if err != nil {
		return err
	}
	if rec.Door == "" || rec.Fingerprint.IsZero() || id.Principal == "" && rec.BoundTo == "" {
		return fmt.Errorf("the record of the call has the door %q, the fingerprint %q and the principal %q: each call needs all of them", rec.Door, rec.Fingerprint, id.Principal)
	}
	return nil
}

// meets delivers a call twice so that the second delivery gets the decision, and checks the replies.
func (d *Door) meets(t *testing.T, want semel.Decision, s scenario) error {
	t.Helper()
	if want == semel.Replay {
		clause.Proves(t, "CORE-SVC.3")
	}
	st := memstore.New()
	var last semel.Record
	var got semel.Decision
	var told []semel.Delivered
	opts := s.options
	opts.Events = &semel.Events{
		Answered: func(ev semel.Delivered) { told = append(told, ev) },
		Decided: func(ev semel.Decided) {
			if got = ev.Decision; got == semel.Execute {
				last.ID = ev.ID
			}
		},
		Unswept: func(semel.Unswept) {},
	}
	deliver, ran, e := d.open(t, st, opts)
	first := deliver(firstKey)
	if got != semel.Execute || first.Code != "" {
		return fmt.Errorf("the first delivery got %q, and its caller %+v", got, first)
	}
	if err := named(t.Context(), st, last.ID); err != nil {
		return err
	}
	if s.prepare != nil {
		if err := s.prepare(t.Context(), e); err != nil {
			return err
		}
	}
	if s.between != nil {
		if err := change(t.Context(), st, last.ID, s.between); err != nil {
			return err
		}
	}
	key := firstKey
	if s.other {
		key = otherKey
	}
	reply := deliver(key)
	if got != want {
		return fmt.Errorf("the second delivery got %q, and its caller %+v", got, reply)
	}
	if n := ran.Load(); n != 1 {
		return fmt.Errorf("the call ran %d times", n)
	}
	if err := observed(told, want); err != nil {
		return err
	}
	if code, refused := want.Code(); refused {
		return d.tells(reply, code)
	}
	if reply != first {
		return fmt.Errorf("the caller was told %+v first, and %+v then", first, reply)
	}
	return nil
}

// observed checks the events of two deliveries, after the second one got a given decision.
func observed(told []semel.Delivered, second semel.Decision) error {
	if len(told) != 2 {
		return fmt.Errorf("the door has told of %d answers to 2 deliveries", len(told))
	}
	for i, want := range []semel.Decision{semel.Execute, second} {
		e := &told[i]
		code, refused := want.Code()
		if !refused {
			code = ""
		}
		if e.Door == "" || e.Decision != want || e.Code != code {
			return fmt.Errorf("of delivery %d the door %q has told %q and the code %q, want %q and %q", i+1, e.Door, e.Decision, e.Code, want, code)
		}
	}
	return nil
}

// change writes another version of a record behind the engine's back.
func change(ctx context.Context, st semel.Store, id semel.ID, f func(rec *semel.Record)) error {
	cur, err := st.Get(ctx, id)
	if err != nil {
		return err
	}
	next := *cur
	f(&next)
	next.Revision[0] ^= 0xff
	_, applied, err := st.Apply(ctx, store.Write{Record: &next, Expect: cur.Revision})
	if err == nil && !applied {
		err = errors.New("the record has changed meanwhile")
	}
	return err
}

// tells compares a caller's reply with the meaning of a code.
func (d *Door) tells(got Reply, code semel.Code) error {
	m, known := door.Lookup(code)
	if !known {
		return fmt.Errorf("package door has no meaning for the code %q", code)
	}
	want, ok := d.Differs[code]
	if !ok {
		if want = (Reply{Status: m.Status, Code: string(code)}); got.Status == 0 {
			want.Status = 0
		}
	}
	if d.NoAction == "" {
		want.Action = m.Do
	}
	if got.Body = ""; got != want { // doors say it in their own words
		return fmt.Errorf("for %q the caller is told %+v, want %+v", code, got, want)
	}
	return nil
}

// Codes checks that a door can express a refusal with every code, the engine's and package
// door's. refuse returns a caller's reply to an error with that code.
func Codes(t *testing.T, differs map[semel.Code]Reply, refuse func(t *testing.T, code semel.Code) Reply) {
	codes := semel.Codes()
	for _, m := range door.Meanings() {
		if !slices.Contains(codes, m.Code) {
			codes = append(codes, m.Code)
		}
	}
	d := Door{Differs: differs}
	for _, code := range codes {
		t.Run(string(code), func(t *testing.T) {
			if err := d.tells(refuse(t, code), code); err != nil {
				t.Error(err)
			}
		})
	}
}
