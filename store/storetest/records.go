package storetest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

var (
	revisionPrefix = func() (p [8]byte) {
		rand.Read(p[:])
		return p
	}()
	revisionCount atomic.Uint64
)

// fresh returns a new, unique revision.
func fresh() (r store.Revision) {
	copy(r[:8], revisionPrefix[:])
	binary.BigEndian.PutUint64(r[8:], revisionCount.Add(1))
	return r
}

// key returns an identity with this key; the rest is the same for all of them.
func key(name string) semel.ID {
	return semel.ID{Tenant: "tenant", Principal: "principal", Operation: "operation", Key: name}
}

// epoch is a fixed time for records.
var epoch = store.InstantOf(time.Date(2031, 2, 3, 4, 5, 6, 123456789, time.UTC))

// claimed returns a record as a claim writes it, with a fresh revision.
func claimed(id semel.ID, fence int64) semel.Record {
	return semel.Record{
		ID: id, Revision: fresh(), State: semel.Processing, Principal: id.Principal, Fence: fence, Origin: fence,
		Attempt: 1, Holder: "holder-" + strconv.FormatInt(fence, 10),
		CreatedAt: epoch, UpdatedAt: epoch, StartedAt: epoch,
		LeaseUntil: epoch.Add(time.Minute), NextAt: epoch.Add(time.Minute),
	}
}

// next returns the next version of a record, with a fresh revision.
func next(rec semel.Record, change func(*semel.Record)) semel.Record {
	rec.Revision = fresh()
	change(&rec)
	return rec
}

// rich sets the fields that a list might leave out.
func rich(r *semel.Record) {
	r.Held, r.HeldReason, r.HeldFrom = true, "held", fresh()
	r.Failure, r.Result.Data = &store.Failure{Code: "c"}, []byte{}
	r.Effects = []store.EffectRecord{{Name: "e", State: store.EffectStarted, StartedAt: epoch}}
	r.Earlier = []store.AttemptRecord{{Number: 1, Disposition: semel.DispositionAborted, EndedAt: epoch}}
	r.Fingerprint = payload("payload")
}

// put applies a write, which must succeed, and returns its record.
func put(t *testing.T, s semel.Store, rec semel.Record, expect store.Revision) semel.Record {
	t.Helper()
	cur, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec), Expect: expect})
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if !applied {
		t.Fatalf("Apply was refused although the stored revision is %v; it says that %v is stored", expect, revisionOf(cur))
	}
	same(t, "the record that Apply returned", cur, rec)
	return rec
}

// refused applies a write, which must change nothing and return want.
func refused(t *testing.T, s semel.Store, w store.Write, want semel.Record) {
	t.Helper()
	cur, applied, err := s.Apply(t.Context(), w)
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if applied {
		t.Fatalf("Apply wrote over revision %v although it expected %v", want.Revision, w.Expect)
	}
	if want.Revision.IsZero() && cur != nil {
		t.Fatalf("Apply says that %v is stored where there is no record", cur.Revision)
	}
	if !want.Revision.IsZero() {
		same(t, "the current record that Apply returned", cur, want)
	}
	stored(t, s, w.Record.ID, want)
}

// stored checks what Get returns. The zero Record means that there must be none.
func stored(t *testing.T, s semel.Store, id semel.ID, want semel.Record) {
	t.Helper()
	got, err := s.Get(t.Context(), id)
	if want.Revision.IsZero() {
		if !errors.Is(err, semel.ErrNotFound) {
			t.Fatalf("Get of an absent record gives revision %v, error %v, want ErrNotFound", revisionOf(got), err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	same(t, "the record that Get returned", got, want)
}

// revisionOf returns a record's revision, zero if there is no record.
func revisionOf(rec *semel.Record) (none store.Revision) {
	if rec == nil {
		return none
	}
	return rec.Revision
}

func same(t *testing.T, what string, got *semel.Record, want semel.Record) {
	t.Helper()
	if d := difference(got, want); d != "" {
		t.Fatalf("%s differs from what was written:\n%s", what, d)
	}
}

// difference describes how two records differ; it is empty if they don't. Nil and empty Effects,
// Earlier, Attributes or Outbox are equal. Nil and empty Data aren't, because nil means that there
// is no result. Unexported fields are the engine's own and don't count.
func difference(got *semel.Record, want semel.Record) string {
	if got == nil {
		return "  there is none"
	}
	g, w := reflect.ValueOf(plain(*got)), reflect.ValueOf(plain(want))
	var b strings.Builder
	for i := range g.NumField() {
		if !g.Type().Field(i).IsExported() {
			continue
		}
		if x, y := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(x, y) {
			fmt.Fprintf(&b, "  %s: %s, want %s\n", g.Type().Field(i).Name, brief(x), brief(y))
		}
	}
	return b.String()
}

// plain returns rec with nil in place of empty lists.
func plain(rec semel.Record) semel.Record {
	if len(rec.Effects) == 0 {
		rec.Effects = nil
	}
	if len(rec.Earlier) == 0 {
		rec.Earlier = nil
	}
	if len(rec.Attributes) == 0 {
		rec.Attributes = nil
	}
	if len(rec.Outbox) == 0 {
		rec.Outbox = nil
	}
	return rec
}

func brief(v any) string {
	if f, ok := v.(*store.Failure); ok && f != nil {
		return fmt.Sprintf("&%q", *f)
	}
	s := fmt.Sprintf("%#v", v)
	if len(s) > 400 {
		s = s[:400] + fmt.Sprintf("… (%d characters)", len(s))
	}
	return s
}

// within runs f, and fails the test if that takes longer than d, so that a hanging call doesn't
// hang the suite.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatalf("%s did not return within %v", what, d)
	}
}
