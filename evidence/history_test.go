package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestMain makes random histories the same every time, unless it is asked for others.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.seed" })
	if !given {
		if err := flag.Set("rapid.seed", "1"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// history is what callers, operators, a sweep and time do, at random.
type history struct {
	*rig
	t    *testing.T
	rt   *rapid.T
	open []*semel.Attempt
	move scribe
}

// window is how long outcomes are kept in histories.
const window = 10 * time.Second

// inHistory runs a random history in virtual time. What body returns, if anything, fails it.
func inHistory(t *testing.T, body func(h *history) string) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		wrong := ""
		synctest.Test(t, func(t *testing.T) { wrong = body(newHistory(t, rt)) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func newHistory(t *testing.T, rt *rapid.T) *history {
	var ops []semel.Operation
	for _, op := range []semel.Operation{
		{Name: "op", OnFailure: semel.RetryFailure},
		{Name: "again", OnAbandoned: semel.RetryAbandoned, OnFailure: semel.ReplayFailure},
		{Name: "asked", Confirmation: &semel.ConfirmationPolicy{}},
		{Name: "ledger", Effects: []string{"a", "b"}, OnFailure: semel.RetryFailure},
		{Name: "numbered", Sequenced: true, OnFailure: semel.RetryFailure},
		{Name: "gapless", Sequenced: true, Gapless: true},
		{Name: "undone", Compensation: "undo", Compensate: func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
			return semel.Result{}, nil
		}},
		{Name: "undo"},
	} {
		op.Evidence, op.Window, op.Lease = semel.EvidenceDecisions, window, 3*time.Second
		op.Remember = rapid.SampledFrom([]time.Duration{0, 2 * window}).Draw(rt, "remember")
		ops = append(ops, op)
	}
	h := &history{rig: newRig(t, nil, ops...), t: t, rt: rt}
	h.move = scribe{rig: h.rig, version: evidence.Version}
	return h
}

func (h *history) int(most int, name string) int { return rapid.IntRange(0, most).Draw(h.rt, name) }

// call is a delivery of one of a few calls.
func (h *history) call() semel.Call {
	c := call("acme", fmt.Sprint("k", h.int(2, "key")), rapid.SampledFrom([]string{"p", "p", "p", "q"}).Draw(h.rt, "payload"))
	c.Operation = rapid.SampledFrom([]string{"op", "again", "asked", "ledger", "numbered", "numbered", "gapless", "undone"}).Draw(h.rt, "operation")
	c.BoundTo = rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(h.rt, "credential")
	if c.Operation == "numbered" || c.Operation == "gapless" {
		c.Sequence = uint64(1 + h.int(3, "number"))
		c.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, fmt.Append(nil, c.Sequence))
	}
	return c
}

// id is that of the record of a call, by whatever name the engine keeps it.
func (h *history) id(c *semel.Call) semel.ID {
	id := c.ID(semel.SharePrincipal)
	if c.Sequence != 0 {
		if _, err := h.store.Get(h.t.Context(), id.Numbered(c.Sequence)); err == nil {
			return id.Numbered(c.Sequence)
		}
	}
	return id
}

func (h *history) begin(ctx context.Context, c semel.Call) {
	ans, err := h.Begin(ctx, c)
	if ans.Challenge != nil && rapid.Bool().Draw(h.rt, "confirmed") {
		c.Confirm = ans.Challenge.Token
		ans, err = h.Begin(ctx, c)
	}
	if err != nil || ans.Attempt == nil {
		return
	}
	if c.Operation == "ledger" && rapid.Bool().Draw(h.rt, "effect") {
		_, _ = semel.Effect(ctx, ans.Attempt, "a", func(context.Context, string) (int, error) {
			if h.int(2, "lost") == 0 {
				return 0, semel.Unknown(errors.New("lost"))
			}
			return 1, nil
		})
	}
	h.open = append(h.open, ans.Attempt)
}

func (h *history) end(ctx context.Context) {
	if len(h.open) == 0 {
		return
	}
	i := h.int(len(h.open)-1, "attempt")
	a := h.open[i]
	h.open = append(h.open[:i:i], h.open[i+1:]...)
	switch h.int(7, "end") {
	case 0, 1:
		_ = a.Complete(ctx, semel.Result{Data: fmt.Append(nil, "x", h.int(9, "result"))})
	case 2:
		_ = a.Fail(ctx, store.Failure{}, semel.Result{})
	case 3:
		_ = a.Reject(ctx, store.Failure{Code: "no"}, semel.Result{})
	case 4:
		_ = a.Abort(ctx, store.Failure{})
	case 5:
		_ = a.Hold(ctx, "why")
	case 6:
		_ = a.Abandon(ctx, "gone")
	case 7:
		a.Detach() // its holder is gone
	}
}

// setAside puts a refusal into a record of its own, for the caller who got it.
func (h *history) setAside() {
	for _, rec := range h.records() {
		own := rec
		own.ID.Principal += store.ScopeMark + rec.BoundTo
		if _, err := h.store.Get(h.t.Context(), own.ID); err == nil || rec.BoundTo == "" || rec.Disposition != semel.DispositionRejected || strings.Contains(rec.ID.Principal, store.ScopeMark) {
			continue
		}
		h.move.write(h.t, nil, &own, store.ChangeMoved)
		return
	}
}

// records are all but those of this module.
func (h *history) records() (all []semel.Record) {
	q := store.Query{Limit: store.MaxSearchLimit}
	for {
		page, err := h.store.Extras().Search.Search(h.t.Context(), q)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, rec := range page.Records {
			if !strings.HasPrefix(rec.ID.Operation, "semel.") {
				all = append(all, rec)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}

func (h *history) play(steps int) {
	ctx := context.Background()
	for range steps {
		c := h.call()
		switch h.int(11, "step") {
		case 0, 1, 2, 3, 4:
			h.begin(ctx, c)
		case 5, 6, 7:
			h.end(ctx)
		case 8:
			pass(time.Duration(1+h.int(12_000, "ms")) * time.Millisecond)
		case 9:
			if _, err := h.Sweep(ctx); err != nil {
				h.t.Fatal(err)
			}
		case 10:
			id := h.id(&c)
			outcome := rapid.SampledFrom([]store.Disposition{semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed, semel.DispositionAborted, semel.DispositionAbandoned}).Draw(h.rt, "outcome")
			if _, err := h.Settle(ctx, id, semel.Settlement{Outcome: outcome}, "seen"); err == nil {
				continue
			}
			if c.Operation == "undone" && rapid.Bool().Draw(h.rt, "undone") {
				_, _ = h.Compensate(ctx, id, "me", "wrong")
				continue
			}
			_ = h.Purge(ctx, id, semel.Removal{Reason: "old"})
		case 11:
			h.setAside()
		}
	}
}

func (h *history) finish() {
	for _, a := range h.open {
		a.Detach()
	}
	h.open = nil
}

// Whatever honest engines do, their log never contradicts itself, and their store is as it
// says.
func TestHonestEnginesAreNeverBlamed(t *testing.T) {
	inHistory(t, func(h *history) string {
		h.play(1 + h.int(59, "steps"))
		h.finish()
		found, err := h.log.Audit(h.t.Context(), nil)
		if err != nil || found.Found != 0 {
			return fmt.Sprintf("an honest store was blamed: %+v, %v", found, err)
		}
		if report := h.verified(h.t); report.Finding != nil {
			return "an honest log was blamed: " + report.Finding.String()
		}
		return ""
	})
}

// told reports whether the log tells of a change of a record.
func (h *history) told(id semel.ID) bool {
	numbers, err := h.store.FindEvidence(h.t.Context(), h.log.Subject(id), 0, 1000)
	if err != nil {
		h.t.Fatal(err)
	}
	all := h.entries(h.t)
	return slices.ContainsFunc(numbers, func(n uint64) bool { p := all[n].Payload; return p.Change != "" && p.Change != store.ChangePurged })
}

// targets are the records that the log tells of and that must be there.
func (h *history) targets() (all []semel.Record) {
	now, err := h.store.Now(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, rec := range h.records() {
		if rec.Mark == nil && (!rec.State.Terminal() || rec.ExpiresAt > now.Add(2*time.Second)) && h.told(rec.ID) {
			all = append(all, rec)
		}
	}
	return all
}

// overwrite writes a record behind the engine.
func (h *history) overwrite(rec semel.Record, was store.Revision) {
	rec.Revision = was
	rec.Revision[2]++
	if _, ok, err := h.store.Apply(h.t.Context(), store.Write{Record: &rec, Expect: was}); !ok || err != nil {
		h.t.Fatal(ok, err)
	}
}

// lies are what somebody may do to the store. They return whether there was something to do
// it to.
var lies = map[string]func(h *history, before []semel.Record) bool{
	"removed": func(h *history, _ []semel.Record) bool {
		all := h.targets()
		if len(all) == 0 {
			return false
		}
		rec := &all[h.int(len(all)-1, "removed")]
		if n, err := h.store.Purge(h.t.Context(), []store.Ref{{ID: rec.ID, Revision: rec.Revision}}); n != 1 || err != nil {
			h.t.Fatal(n, err)
		}
		return true
	},
	"changed": func(h *history, _ []semel.Record) bool {
		all := h.targets()
		if len(all) == 0 {
			return false
		}
		rec := all[h.int(len(all)-1, "changed")]
		switch {
		case rec.Held:
			rec.HeldReason += "!"
		case rec.State == semel.Completed:
			rec.Result.Data = append(rec.Result.Data, '!')
		default:
			rec.CreatedAt--
		}
		h.overwrite(rec, rec.Revision)
		return true
	},
	"put back": func(h *history, before []semel.Record) bool {
		for _, rec := range h.targets() {
			for _, was := range before {
				if was.ID == rec.ID && (was.Fence != rec.Fence || was.State != rec.State || was.Held != rec.Held) && h.told(rec.ID) {
					h.overwrite(was, rec.Revision)
					return true
				}
			}
		}
		return false
	},
	"added": func(h *history, _ []semel.Record) bool { return h.added(false) },
	"added and replayed": func(h *history, _ []semel.Record) bool {
		return h.added(true)
	},
}

// added adds a completed record behind the engine, and has a delivery get it.
func (h *history) added(replayed bool) bool {
	h.do(h.t, call("acme", "honest", "p"), "paid")
	for _, rec := range h.targets() {
		if rec.State != semel.Completed || rec.ID.Operation != "op" {
			continue
		}
		rec.ID.Key = "forged"
		rec.ExpiresAt += store.Instant(time.Hour)
		rec.NextAt = rec.ExpiresAt
		rec.BoundTo = ""
		now, err := h.store.Now(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		rec.Fence, rec.CreatedAt = now.Micros(), now
		h.overwrite(rec, store.Revision{})
		c := call("acme", "forged", "")
		c.Operation, c.Fingerprint = "op", rec.Fingerprint
		for range h.int(9, "more") {
			if !replayed {
				break
			}
			if ans := h.do(h.t, c, "x"); ans.Decision != semel.Replay {
				h.t.Fatal(ans.Decision)
			}
		}
		if replayed {
			h.do(h.t, c, "x")
		}
		return true
	}
	return false
}

// What somebody removes, changes, puts back or adds behind honest engines is found.
func TestLiesAreFoundInAnyHistory(t *testing.T) {
	clause.Proves(t, "IDS-XV.5")
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			told := 0
			inHistory(t, func(h *history) string {
				h.play(10 + h.int(20, "before"))
				before := h.records()
				h.play(10 + h.int(20, "after"))
				h.finish()
				pass(time.Millisecond)
				if !lie(h, before) {
					return ""
				}
				told++
				found, err := h.log.Audit(h.t.Context(), nil)
				if err != nil || found.Found == 0 {
					return fmt.Sprintf("the audit found nothing: %+v, %v", found, err)
				}
				if report := h.verified(h.t); name == "added and replayed" && report.Finding == nil {
					return fmt.Sprintf("the story is believed: %+v", report)
				}
				return ""
			})
			if told < 10 {
				t.Errorf("only %d histories had something to lie about", told)
			}
		})
	}
	t.Run("cut", func(t *testing.T) {
		inHistory(t, func(h *history) string {
			h.play(20)
			h.do(h.t, call("acme", "a", "p"), "x")
			h.integrate(h.t)
			short := h.export(h.t, nil)
			h.do(h.t, call("acme", "b", "p"), "x")
			h.play(5)
			h.finish()
			h.verified(h.t) // which signs the rest
			whole, _ := h.reader(h.t).Checkpoint()
			if report := verify(h.t, short, h.keys.Trust(), whole); report.Finding == nil || report.Finding.Kind != evidence.KindCut {
				return fmt.Sprintf("a log that was cut is believed: %+v", report)
			}
			return ""
		})
	})
}

// Records whose window is open, and those that are held or have messages to deliver, aren't
// forgotten for the others.
func TestTheStoryOfManyRecords(t *testing.T) {
	r := newRig(t, nil, semel.Operation{Name: "op", Evidence: semel.EvidenceChanges})
	ctx, op := t.Context(), &semel.Operation{Name: "op", Evidence: semel.EvidenceChanges}
	ans, err := r.Begin(ctx, call("acme", "held", "p"))
	if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"long", "over"} {
		c := call("acme", key, "p")
		c.Window = map[string]time.Duration{"long": 1000 * time.Hour}[key]
		r.do(t, c, "paid")
	}
	s := &scribe{rig: r, version: evidence.Version}
	over, err := r.store.Get(ctx, idOf("over"))
	if err != nil {
		t.Fatal(err)
	}
	sending := *over
	sending.ID.Key, sending.Outbox = "sending", []store.Message{{ID: "m", State: store.MessagePending}}
	s.write(t, nil, &sending, store.ChangeEnded)
	other := *over
	other.ID.Key, other.UpdatedAt = "other", over.ExpiresAt.Add(time.Hour)
	one := r.log.Changed(op, &other, &other, store.ChangeEnded)[0].Leaf
	var artifact evidence.Artifact
	if artifact, err = evidence.ParseArtifact(one); err != nil {
		t.Fatal(err)
	}
	var batch []store.Entry
	for n := range 1<<16 + 10 {
		batch = append(batch, store.Entry{Leaf: bytes.Replace(one, []byte(artifact.Payload.Record), fmt.Appendf(nil, "rec_%032x", n), 1)})
	}
	if err := r.store.AppendEvidence(ctx, batch); err != nil {
		t.Fatal(err)
	}
	// A delivery that was answered before the record was forgotten is told of now.
	c := call("acme", "over", "p")
	durable := &semel.Operation{Name: "op", Evidence: semel.EvidenceDurable}
	if err := r.log.Decided(ctx, durable, &c, &semel.Answer{Decision: semel.Replay, Record: over}, nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"over", "held", "long", "sending"} {
		r.remove(t, key)
		r.do(t, call("acme", key, "p"), "paid")
	}
	report := r.verified(t)
	if report.ContradictionsFound != 3 {
		t.Errorf("%+v", report)
	}
	for i, first := range []uint64{1, 3, 7} {
		if len(report.Contradictions) != 3 || report.Contradictions[i].First != first {
			t.Errorf("%+v", report.Contradictions)
		}
	}
}

// A record with messages to deliver outlives its window, and is missed after it.
func TestARecordThatIsUnfinishedIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.do(t, call("acme", "k", "p"), "paid")
		done, err := r.store.Get(t.Context(), idOf("k"))
		if err != nil {
			t.Fatal(err)
		}
		sending := *done
		sending.ID.Key, sending.Outbox = "sending", []store.Message{{ID: "m", State: store.MessagePending}}
		s := &scribe{rig: r, version: evidence.Version}
		s.write(t, nil, &sending, store.ChangeEnded)
		pass(100 * 24 * time.Hour)
		r.remove(t, "sending")
		r.remove(t, "k")
		got, err := r.log.Audit(t.Context(), nil)
		if err != nil || got.Found != 1 || got.Faults[0].Key != "sending" || got.Faults[0].Kind != evidence.RecordMissing {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
