package semel

import "github.com/semelhq/semel/store"

// nextLook is when a sweep must attend to a terminal record: to deliver its messages,
// resume its compensation, or purge it.
func nextLook(r *Record) store.Instant {
	if !r.Unfinished() {
		return r.ExpiresAt
	}
	at := store.Instant(0)
	for i := range r.Outbox {
		if m := &r.Outbox[i]; m.State == store.MessagePending {
			at = earlier(at, m.NextAt)
		}
	}
	if c := r.Compensation; c != nil && c.State == store.CompensationStarted {
		at = earlier(at, c.NextAt)
	}
	return at
}

// earlier is the earlier of two instants; zero means never.
func earlier(a, b store.Instant) store.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// leaseOver reports whether the holder of a processing record counts as gone at now.
func leaseOver(r *Record, now store.Instant) bool {
	return r.Held == "" && now >= r.LeaseUntil
}

// openEffect returns the first effect that was started and has no result.
func openEffect(r *Record) (store.EffectRecord, bool) {
	for _, ef := range r.Effects {
		if ef.State == store.EffectStarted {
			return ef, true
		}
	}
	return store.EffectRecord{}, false
}

// asEarlier is the newest attempt as an entry of Record.Earlier.
func asEarlier(r *Record) store.AttemptRecord {
	return store.AttemptRecord{
		Number: r.Attempt, Fence: r.Fence, Holder: r.Holder, Principal: r.Principal,
		Disposition: r.Disposition, Failure: r.Failure, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
}
