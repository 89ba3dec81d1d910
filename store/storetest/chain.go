package storetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// version names one version of a record.
type version struct {
	ID       semel.ID
	Revision store.Revision
}

// chains collects the writes that were applied. Each names the write before it, so they form
// one chain per identity, in whatever order they arrive: its true history, without any clock.
//
// Package history checks the clients' answers; chains checks the stored versions, which clients
// can't see: that each may follow the one before it.
type chains struct {
	mu      sync.Mutex
	next    map[version]semel.Record // by the version that they follow
	first   map[semel.ID]semel.Record
	err     error
	count   int
	unknown map[version][]semel.Record
}

func newChains() *chains {
	return &chains{next: map[version]semel.Record{}, unknown: map[version][]semel.Record{}, first: map[semel.ID]semel.Record{}}
}

// reached is a [faultstore.Options].Reached.
func (c *chains) reached(w store.Write, _ *semel.Record, applied bool, err error) {
	if err == nil && !applied {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := version{ID: w.Record.ID, Revision: w.Expect}
	if err != nil {
		c.unknown[at] = append(c.unknown[at], *w.Record)
		return
	}
	c.count++
	if other, taken := c.next[at]; taken && c.err == nil {
		c.err = fmt.Errorf("writes %v and %v of %s were both applied over revision %v", other.Revision, w.Record.Revision, w.Record.ID.Key, w.Expect)
	}
	c.next[at] = *w.Record
	if w.Expect.IsZero() {
		c.first[w.Record.ID] = *w.Record
	}
}

// check walks each chain and reports the first step that the rules forbid. It follows the rules,
// not the engine's code. It can't be used if records were purged or have expired.
func (c *chains) check(policy func(name string) semel.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for changed := true; changed; {
		changed = false
		for at, recs := range c.unknown {
			if _, ok := c.next[at]; ok {
				continue
			}
			for _, rec := range recs {
				if _, ok := c.next[version{ID: rec.ID, Revision: rec.Revision}]; ok {
					c.next[at] = rec
					c.count++
					if at.Revision.IsZero() {
						c.first[rec.ID] = rec
					}
					changed = true
					break
				}
			}
		}
	}
	orphans := maps.Clone(c.next)
	for id, rec := range c.first {
		op := policy(id.Operation)
		if rec.State != semel.Processing || rec.Attempt != 1 {
			return fmt.Errorf("the history of %s begins in state %q with attempt %d", id.Key, rec.State, rec.Attempt)
		}
		delete(orphans, version{ID: id})
		for {
			at := version{ID: id, Revision: rec.Revision}
			delete(orphans, at)
			next, ok := c.next[at]
			if !ok {
				break
			}
			if why := forbidden(op, rec, next); why != "" {
				return fmt.Errorf("in the history of %s, revision %v follows %v: %s", id.Key, next.Revision, rec.Revision, why)
			}
			rec = next
		}
	}
	for at, rec := range orphans {
		return fmt.Errorf("%d of %d applied writes follow nothing that was written, as revision %v of %s after %v: %+v", len(orphans), c.count, rec.Revision, at.ID.Key, at.Revision, rec)
	}
	return nil
}

// beginsAnew reports whether b is a claim with another payload, and a shows that nothing happened.
func beginsAnew(a, b semel.Record) bool {
	aborted := a.Disposition == semel.DispositionAborted && !slices.ContainsFunc(a.Earlier, func(at store.AttemptRecord) bool {
		return at.Disposition != semel.DispositionAborted
	})
	return aborted && b.ID == a.ID && b.Fingerprint != a.Fingerprint && b.State == semel.Processing && b.Attempt == 1 && b.Fence > a.Fence && b.Origin == b.Fence
}

// forbidden says why b must not follow a; it is empty if b may.
func forbidden(op semel.Operation, a, b semel.Record) string {
	switch {
	case beginsAnew(a, b):
		return ""
	case b.ID != a.ID || b.Fingerprint != a.Fingerprint || b.Origin != a.Origin || b.CreatedAt != a.CreatedAt:
		return "what may never change has changed"
	case b.Fence != a.Fence && b.StartedAt < a.UpdatedAt:
		return fmt.Sprintf("its lease is counted from %v before it could begin", a.UpdatedAt.Sub(b.StartedAt))
	case b.Fence < a.Fence:
		return fmt.Sprintf("fence %d after %d", b.Fence, a.Fence)
	case b.Fence == a.Fence && a.State != semel.Processing:
		return "a terminal attempt changes"
	case b.Fence == a.Fence && b.Attempt != a.Attempt:
		return "two attempts under one fence"
	case b.Fence == a.Fence:
		return ""
	case b.State != semel.Processing || b.Attempt != a.Attempt+1:
		return fmt.Sprintf("attempt %d in state %q under a new fence after attempt %d", b.Attempt, b.State, a.Attempt)
	case a.State == semel.Completed:
		return "a completed call runs again"
	case a.State == semel.Processing && a.Held:
		return "a held call runs again"
	case a.State == semel.Processing && b.StartedAt < a.LeaseUntil:
		return fmt.Sprintf("a takeover %v before the lease ends", a.LeaseUntil.Sub(b.StartedAt))
	case a.State == semel.Processing && op.OnAbandoned != semel.RetryAbandoned:
		return "an abandoned call runs again although the policy is to hold it"
	case a.Disposition == semel.DispositionRejected:
		return "a rejected call runs again"
	case a.Disposition == semel.DispositionFailed && op.OnFailure != semel.RetryFailure:
		return "a failed call runs again although the policy is to replay the failure"
	}
	return ""
}
