package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// modelSteps is the length of one random history.
const modelSteps = 400

var modelCases = []testCase{
	{
		name: "random histories give the same outcomes as on the memory store",
		why:  "Deciding stays in the engine, so that no two stores can disagree.",
		run: func(t *testing.T, env Env) {
			start := seed()
			t.Logf("repeat with -storetest.seed=%d", start)
			for i := range 10 {
				// One store for all histories: each has keys of its own.
				if err := compare(t.Context(), &env, start+uint64(i), modelSteps); err != nil {
					t.Fatalf("-storetest.seed=%d: %v", start+uint64(i), err)
				}
			}
		},
	},
}

// history makes random steps on a store and on the oracle.
type history struct {
	*rand.Rand
	env    *Env
	oracle *memstore.Store
	ids    []semel.ID
	// revisions and writes that were used before, per identity.
	revisions map[semel.ID][]semel.Revision
	writes    []semel.Write
	log       []string
	counts    map[string]int
}

// compare runs one random history on the store and on a memory store, step by
// step, and reports the first difference.
func compare(ctx context.Context, env *Env, seed uint64, steps int) error {
	h := &history{
		Rand: rand.New(rand.NewPCG(seed, 1)), env: env, oracle: memstore.New(),
		revisions: map[semel.ID][]semel.Revision{}, counts: map[string]int{},
	}
	defer h.oracle.Close()
	for i := range 6 {
		h.ids = append(h.ids, semel.ID{Tenant: fmt.Sprintf("%d", seed), Principal: string(rune('a' + i%2)), Operation: "o", Key: fmt.Sprint(i / 2)})
	}
	type step struct {
		weight int
		name   string
		do     func(context.Context) error
	}
	choices := []step{{50, "apply", h.apply}, {8, "again", h.again}, {15, "get", h.get}}
	_, due := env.Store.(semel.DueStore)
	_, purge := env.Store.(semel.PurgeStore)
	if due {
		choices = append(choices, step{12, "due", h.due})
	}
	if purge {
		choices = append(choices, step{14, "purge", h.purge})
	}
	if env.Reopen != nil {
		choices = append(choices, step{1, "reopen", h.reopen})
	}
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	for i := range steps {
		pick := h.IntN(total)
		for _, c := range choices {
			if pick -= c.weight; pick < 0 {
				h.counts[c.name]++
				if err := c.do(ctx); err != nil {
					return fmt.Errorf("step %d differs from the memory store: %w\nthe last steps:\n  %s", i, err, strings.Join(h.log[max(0, len(h.log)-12):], "\n  "))
				}
				break
			}
		}
	}
	for _, id := range h.ids {
		if err := errors.Join(h.same(ctx, id), h.sameLog(ctx, id)); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return nil
}

// sameLog compares the entries of one identity.
func (h *history) sameLog(ctx context.Context, id semel.ID) error {
	if !canEvidence.has(h.env.Store) {
		return nil
	}
	var logs [2][]semel.Entry
	for i, s := range []semel.Store{h.env.Store, h.oracle} {
		all, err := readAll(ctx, s, 0) // whose entries can be found then
		if err != nil {
			return err
		}
		numbers, err := evidenceOf(s).FindEvidence(ctx, subject(id), 0, len(all))
		if err != nil {
			return err
		}
		for _, n := range numbers {
			if n >= uint64(len(all)) {
				return fmt.Errorf("entry %d of %d is found", n, len(all))
			}
			logs[i] = append(logs[i], all[n])
		}
	}
	return differEntries(logs[0], logs[1])
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// store is the store under test, as a [semel.LocalStore] every other time if it
// is one: both ways lead to the same records.
func (h *history) store() semel.Store {
	if l, ok := h.env.Store.(semel.LocalStore); ok && h.IntN(2) == 0 {
		return local{h.env.Store, l}
	}
	return h.env.Store
}

func (h *history) id() semel.ID { return h.ids[h.IntN(len(h.ids))] }

// revision is one that could be expected: the current one as a rule, else an
// old one, a foreign one, or none.
func (h *history) revision(id semel.ID) semel.Revision {
	old := h.revisions[id]
	switch h.IntN(10) {
	case 0:
		return fresh()
	case 1:
		return semel.Revision{}
	case 2:
		if len(old) > 0 {
			return old[h.IntN(len(old))]
		}
	}
	cur, err := h.oracle.Get(context.Background(), id)
	if err != nil {
		return semel.Revision{}
	}
	return cur.Revision
}

// write is a random write.
func (h *history) write() semel.Write {
	id := h.id()
	rec := claimed(id, h.Int64())
	rec.NextAt = 0
	if h.IntN(4) > 0 {
		rec.NextAt = epoch.Add(time.Duration(h.IntN(21)-10) * time.Minute)
	}
	if h.IntN(2) == 0 {
		rec.State, rec.Disposition, rec.LeaseUntil = semel.Completed, semel.DispositionCompleted, 0
		rec.Result.Data = make([]byte, h.IntN(200))
		for i := range rec.Result.Data {
			rec.Result.Data[i] = byte(h.Uint32())
		}
	}
	for i := range h.IntN(3) {
		rec.Effects = append(rec.Effects, semel.EffectRecord{Name: fmt.Sprint(i), State: semel.EffectStarted, StartedAt: epoch})
	}
	w := semel.Write{Record: rec, Expect: h.revision(id)}
	if canEvidence.has(h.env.Store) {
		for i := range h.IntN(3) {
			w.Evidence = append(w.Evidence, entry(id, fmt.Sprint(rec.Revision, " ", i)))
		}
	}
	return w
}

func (h *history) apply(ctx context.Context) error {
	w := h.write()
	h.writes = append(h.writes, w)
	h.revisions[w.Record.ID] = append(h.revisions[w.Record.ID], w.Record.Revision)
	return h.send(ctx, w)
}

// again sends a write that was sent before.
func (h *history) again(ctx context.Context) error {
	if len(h.writes) == 0 {
		return nil
	}
	recent := h.writes[max(0, len(h.writes)-8):]
	return h.send(ctx, recent[h.IntN(len(recent))])
}

func (h *history) send(ctx context.Context, w semel.Write) error {
	got, applied, err := h.store().Apply(ctx, w)
	want, wantApplied, wantErr := h.oracle.Apply(ctx, w)
	h.note("apply %v to %s/%s over %v: applied %v", w.Record.Revision, w.Record.ID.Principal, w.Record.ID.Key, w.Expect, wantApplied)
	if err != nil || wantErr != nil {
		return errors.Join(err, wantErr)
	}
	if applied != wantApplied {
		return fmt.Errorf("applied is %v, want %v", applied, wantApplied)
	}
	if d := difference(got, want); d != "" {
		return fmt.Errorf("another record was returned by Apply:\n%s", d)
	}
	return nil
}

func (h *history) get(ctx context.Context) error {
	id := h.id()
	h.note("get %s/%s", id.Principal, id.Key)
	return h.same(ctx, id)
}

// same compares what is stored of one identity.
func (h *history) same(ctx context.Context, id semel.ID) error {
	got, err := h.store().Get(ctx, id)
	want, wantErr := h.oracle.Get(ctx, id)
	if errors.Is(err, semel.ErrNotFound) != errors.Is(wantErr, semel.ErrNotFound) || err != nil && wantErr == nil {
		return fmt.Errorf("error of Get is %v, want %v", err, wantErr)
	}
	if d := difference(got, want); err == nil && d != "" {
		return fmt.Errorf("another record:\n%s", d)
	}
	return nil
}

func (h *history) due(ctx context.Context) error {
	until := epoch.Add(time.Duration(h.IntN(25)-12) * time.Minute)
	h.note("due until %v", until)
	mine := func(s semel.DueStore) (map[semel.ID]semel.Record, error) {
		// Records of other histories are in the store too, so the limit is
		// above all of them.
		page, err := s.Due(ctx, semel.DueQuery{Until: until, Limit: 1 << 20})
		err = errors.Join(err, errors.Join(page.Unreadable...))
		m := map[semel.ID]semel.Record{}
		for _, rec := range page.Records {
			if !slices.Contains(h.ids, rec.ID) {
				continue
			}
			if _, twice := m[rec.ID]; twice {
				err = errors.Join(err, fmt.Errorf("listed as due twice: %s/%s", rec.ID.Principal, rec.ID.Key))
			}
			m[rec.ID] = rec
		}
		return m, err
	}
	got, err := mine(h.env.Store.(semel.DueStore))
	want, wantErr := mine(h.oracle)
	if err != nil || wantErr != nil {
		return errors.Join(err, wantErr)
	}
	for _, id := range h.ids {
		g, listed := got[id]
		w, wanted := want[id]
		if listed != wanted {
			return fmt.Errorf("listed as due %s/%s: %v, want %v", id.Principal, id.Key, listed, wanted)
		}
		if d := difference(g, w); d != "" {
			return fmt.Errorf("another record is listed as due:\n%s", d)
		}
	}
	return nil
}

func (h *history) purge(ctx context.Context) error {
	var refs []semel.Ref
	for range 1 + h.IntN(3) {
		id := h.id()
		refs = append(refs, semel.Ref{ID: id, Revision: h.revision(id)})
	}
	got, err := h.env.Store.(semel.PurgeStore).Purge(ctx, refs)
	want, wantErr := h.oracle.Purge(ctx, refs)
	h.note("purge %d refs: %d deleted", len(refs), want)
	if err != nil || wantErr != nil {
		return errors.Join(err, wantErr)
	}
	if got != want {
		return fmt.Errorf("deleted %d records, want %d", got, want)
	}
	return nil
}

func (h *history) reopen(context.Context) error {
	h.note("reopen")
	h.env.Store = h.env.Reopen()
	return nil
}
