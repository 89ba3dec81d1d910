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
)

var (
	revisionPrefix = func() (p [8]byte) {
		rand.Read(p[:])
		return p
	}()
	revisionCount atomic.Uint64
)

// fresh is a revision that no other write carries.
func fresh() (r semel.Revision) {
	copy(r[:8], revisionPrefix[:])
	binary.BigEndian.PutUint64(r[8:], revisionCount.Add(1))
	return r
}

// key is an identity that differs from others in its key only.
func key(name string) semel.ID {
	return semel.ID{Tenant: "tenant", Principal: "principal", Operation: "operation", Key: name}
}

// epoch is a time to count from where a record only has to have one.
var epoch = semel.InstantOf(time.Date(2031, 2, 3, 4, 5, 6, 123456789, time.UTC))

// claimed is a record as a claim writes it, under a fresh revision.
func claimed(id semel.ID, fence int64) semel.Record {
	return semel.Record{
		ID: id, Revision: fresh(), State: semel.Processing, Principal: id.Principal, Fence: fence, Origin: fence,
		Attempt: 1, Holder: "holder-" + strconv.FormatInt(fence, 10),
		CreatedAt: epoch, UpdatedAt: epoch, StartedAt: epoch,
		LeaseUntil: epoch.Add(time.Minute), NextAt: epoch.Add(time.Minute),
	}
}

// next is rec under a fresh revision, changed.
func next(rec semel.Record, change func(*semel.Record)) semel.Record {
	rec.Revision = fresh()
	change(&rec)
	return rec
}

// put applies a write that must succeed and returns its record.
func put(t *testing.T, s semel.Store, rec semel.Record, expect semel.Revision) semel.Record {
	t.Helper()
	cur, applied, err := s.Apply(t.Context(), semel.Write{Record: rec, Expect: expect})
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if !applied {
		t.Fatalf("Apply was refused although the stored revision is %v; it says that %v is stored", expect, cur.Revision)
	}
	same(t, "the record that Apply returned", cur, rec)
	return rec
}

// refused applies a write that must change nothing and return want.
func refused(t *testing.T, s semel.Store, w semel.Write, want semel.Record) {
	t.Helper()
	cur, applied, err := s.Apply(t.Context(), w)
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if applied {
		t.Fatalf("Apply wrote over revision %v although it expected %v", want.Revision, w.Expect)
	}
	same(t, "the current record that Apply returned", cur, want)
	stored(t, s, w.Record.ID, want)
}

// stored checks what Get returns; the zero Record stands for none.
func stored(t *testing.T, s semel.Store, id semel.ID, want semel.Record) {
	t.Helper()
	got, err := s.Get(t.Context(), id)
	if want.Revision.IsZero() {
		if !errors.Is(err, semel.ErrNotFound) {
			t.Fatalf("Get of an absent record gives revision %v, error %v, want ErrNotFound", got.Revision, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	same(t, "the record that Get returned", got, want)
}

func same(t *testing.T, what string, got, want semel.Record) {
	t.Helper()
	if d := difference(got, want); d != "" {
		t.Fatalf("%s differs from what was written:\n%s", what, d)
	}
}

// difference describes how two records differ; empty if they do not. Nil and
// empty Effects, Earlier, Attributes or Outbox mean the same; nil and empty Data do
// not, for nil says that there is no result. What the engine notes in a record for itself is no part
// of it.
func difference(got, want semel.Record) string {
	g, w := reflect.ValueOf(plain(got)), reflect.ValueOf(plain(want))
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

// plain is rec without what does not count.
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
	if f, ok := v.(*semel.Failure); ok && f != nil {
		return fmt.Sprintf("&%q", *f)
	}
	s := fmt.Sprintf("%#v", v)
	if len(s) > 400 {
		s = s[:400] + fmt.Sprintf("… (%d characters)", len(s))
	}
	return s
}

// within runs f and fails if it does not return; a call that hangs would
// otherwise hang the suite.
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
