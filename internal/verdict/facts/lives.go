package facts

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// Earlier adds earlier records to the facts about calls, from the log. A purge removes a record,
// and with it everything that the store knew: only the log can show that a call ran, was purged and
// ran again. log may be nil. If the log doesn't reach back to the beginning of a record, for
// example because its operation keeps no evidence, its facts stay as they are: nobody knows then.
// The error is about all calls that the log couldn't be read for.
func Earlier(ctx context.Context, log *evidence.Log, calls ...*verdict.Facts) error {
	if log == nil || !slices.ContainsFunc(calls, func(f *verdict.Facts) bool { return f.Record.Origin != 0 }) {
		return nil
	}
	reader, err := log.Reader(ctx)
	if errors.Is(err, evidence.ErrEmpty) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, at := reader.Checkpoint(); at.Size == 0 {
		return nil
	}
	if _, err := reader.Entry(ctx, 0); err != nil { // this numbers new entries
		return err
	}
	var errs []error
	for _, f := range calls {
		if f.Record.Origin != 0 {
			errs = append(errs, before(ctx, reader, log.Subject(f.Record.ID), f))
		}
	}
	return errors.Join(errs...)
}

// before reads the entries about a call that are older than its record.
func before(ctx context.Context, reader *evidence.Reader, subject store.Subject, f *verdict.Facts) error {
	rec := f.Record
	h := history{event: verdict.IsEvent(rec)}
	for from := uint64(0); ; {
		found, err := reader.FindSome(ctx, subject, from, batch)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, n := range found {
			en, err := reader.Entry(ctx, n)
			if err != nil {
				return err
			}
			leaf, err := evidence.ParseArtifact(en.Leaf)
			if err != nil {
				return err
			}
			fence, _ := strconv.ParseInt(leaf.Payload.Fence, 10, 64)
			if fence >= rec.Origin { // this record's own history
				h.close()
				f.Before, f.Known = h.lives, len(h.lives) > 0 || begins(&leaf) && fence == rec.Origin
				return nil
			}
			h.add(&leaf, en.Opening, fence)
		}
		from = found[len(found)-1] + 1
	}
}

// batch is how many entries are looked up at a time. Most calls have fewer.
const batch = 64

// begins reports whether an entry is the first about a call.
func begins(leaf *evidence.Artifact) bool {
	return leaf.Type == evidence.TypeObservation && leaf.Payload.Decision == evidence.DecisionFirstSeen
}

// history collects lives from entries, in their order.
type history struct {
	lives []verdict.Life
	life  verdict.Life
	event bool  // completing it only accepts an event, which is handed on
	fence int64 // of the last attempt that began
	open  bool  // it hasn't ended
}

// close ends a life. If nothing can have been done in it, and nobody purged it, it isn't worth
// mentioning: such a call runs again under a new record.
func (h *history) close() {
	if h.begin(0); h.life.PurgedAt != 0 || h.life.AtMost() > 0 {
		h.lives = append(h.lives, h.life)
	}
	h.life = verdict.Life{}
}

// begin begins an attempt, and ends an earlier one that may have no end. Zero only does the latter.
func (h *history) begin(fence int64) {
	if h.open {
		h.life.Unknown++
	}
	if h.fence, h.open = fence, fence != 0 && !h.event; h.open {
		h.life.Begun++
	}
}

func (h *history) add(leaf *evidence.Artifact, opening []byte, fence int64) {
	p := &leaf.Payload
	if p.Change == "" {
		return // a delivery that changed nothing
	}
	if leaf.Type != evidence.TypePurged {
		if begins(leaf) && h.fence != 0 && fence != h.fence {
			h.close()
		}
		h.life.PurgedAt, h.life.Who, h.life.Why = 0, "", "" // an earlier purge never happened
	}
	switch leaf.Type {
	case evidence.TypeObservation:
		if p.Executed != nil && *p.Executed {
			h.begin(fence)
		}
	case evidence.TypeStarted:
		h.begin(fence)
	case evidence.TypePurged:
		h.life.PurgedAt = store.InstantOf(leaf.EmittedAt)
		if o, err := evidence.ParseOpening(*leaf, opening); err == nil { // otherwise it is erased
			h.life.Who, h.life.Why = o.SettledBy, o.Reason
		}
	case evidence.TypeMessage:
		if h.event && p.State == string(store.MessageDelivered) {
			h.life.Begun, h.life.Done = 1, 1
		}
	case evidence.TypeExecuted:
		h.end(&h.life.Done)
	case evidence.TypeAbandoned:
		h.end(&h.life.Unknown)
	case evidence.TypeSettled:
		switch p.Disposition {
		case store.DispositionCompleted.String():
			h.end(&h.life.Told)
		case store.DispositionAbandoned.String():
			h.end(&h.life.Unknown)
		default:
			h.end(nil)
		}
	case evidence.TypeRejected, evidence.TypeFailed, evidence.TypeAborted, evidence.TypeReleased:
		h.end(nil)
	}
}

// end ends the attempt that is open, once.
func (h *history) end(count *int) {
	if h.open && count != nil {
		*count++
	}
	h.open = false
}
