package benchstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
	"github.com/semelhq/semel/store/memstore"
)

const (
	operationName = "bench.charge"
	tenant        = "bench"
	principal     = "load"
)

// target is an engine on the measured store.
type target struct {
	engine  *semel.Engine
	payload semel.Fingerprint
	result  []byte
	run     string // makes the new keys differ from those of earlier runs
	records int    // known keys
}

func newTarget(store semel.Store, resultBytes int) (*target, error) {
	op := semel.Operation{Name: operationName, MaxResult: max(resultBytes, semel.DefaultMaxResult)}
	e, err := semel.New(store, &semel.Options{Operations: []semel.Operation{op}})
	if err != nil {
		return nil, err
	}
	t := &target{engine: e, payload: semel.FingerprintOf(semel.SchemeRaw, []byte("bench")), result: make([]byte, resultBytes), run: rand.Text()[:8]}
	// Random bytes, so that compression doesn't help the store. The loop that it is
	// compared with writes the same.
	_, err = rand.Read(t.result)
	return t, err
}

func (t *target) call(key string) semel.Call {
	return semel.Call{Tenant: tenant, Principal: principal, Operation: operationName, Key: key, Fingerprint: t.payload}
}

// execute begins and completes a new key.
func (t *target) execute(ctx context.Context, c *caller) error {
	ans, err := t.engine.Begin(ctx, t.call(t.newKey(c)))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Execute {
		return fmt.Errorf("a new key got %s", ans.Decision)
	}
	return ans.Attempt.Complete(ctx, semel.Result{Data: t.result})
}

// replay begins a known key.
func (t *target) replay(ctx context.Context, c *caller) error {
	c.buf = appendRecordKey(c.buf[:0], c.rng.IntN(t.records))
	ans, err := t.engine.Begin(ctx, t.call(string(c.buf)))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Replay || len(ans.Record.Result.Data) != len(t.result) {
		return fmt.Errorf("a known key got %s with %d bytes", ans.Decision, len(ans.Record.Result.Data))
	}
	return nil
}

// newKey also leaves the key in c.buf.
func (t *target) newKey(c *caller) string {
	b := append(c.buf[:0], t.run...)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(c.number), 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, c.serial, 10)
	c.serial++
	c.buf = b
	return string(b)
}

// appendRecordKey appends the i-th known key.
func appendRecordKey(b []byte, i int) []byte {
	b = append(b, "known-"...)
	return strconv.AppendInt(b, int64(i), 10)
}

// sample is a claim and its outcome, as the engine writes them.
type sample struct {
	claim, outcome semel.Record
}

// takeSample runs one call on a memory store to see what the engine writes.
func (t *target) takeSample(ctx context.Context) (sample, error) {
	store := memstore.New()
	defer store.Close()
	probe, err := newTarget(store, len(t.result))
	if err != nil {
		return sample{}, err
	}
	c := newCallers(1)[0]
	ans, err := probe.engine.Begin(ctx, probe.call(probe.newKey(c)))
	if err != nil {
		return sample{}, err
	}
	if err := ans.Attempt.Complete(ctx, semel.Result{Data: probe.result}); err != nil {
		return sample{}, err
	}
	rec, err := store.Get(ctx, ans.Record.ID)
	if err != nil {
		return sample{}, err
	}
	return sample{claim: *ans.Record, outcome: *rec}, nil
}

// values are what a bare loop writes, as large as the engine's.
type values struct{ claim, outcome []byte }

func (s *sample) values() (v values, err error) {
	if v.claim, err = codec.Append(nil, &s.claim); err != nil {
		return v, err
	}
	v.outcome, err = codec.Append(nil, &s.outcome)
	return v, err
}

// record is the i-th known record: the sample's outcome under another key, with its own
// revision, as if it had just been completed.
func (s *sample) record(i int, now store.Instant) semel.Record {
	rec := s.outcome
	rec.ID.Key = string(appendRecordKey(nil, i))
	binary.BigEndian.PutUint64(rec.Revision[8:], uint64(i))
	shift := now.Sub(rec.EndedAt)
	for _, at := range []*store.Instant{&rec.CreatedAt, &rec.UpdatedAt, &rec.StartedAt, &rec.EndedAt, &rec.ExpiresAt, &rec.NextAt} {
		*at = at.Add(shift)
	}
	return rec
}
