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

// leaseOver reports whether the holder of a processing record counts as gone. At is by which
// its lease is judged: see leaseTime.
func leaseOver(r *Record, at store.Instant) bool {
	return !r.Held && at >= r.LeaseUntil
}

// leaseTime is the time by which a record's lease is judged: now, unless the store's clock has
// leapt since the lease began.
func (e *Engine) leaseTime(r *Record, now store.Instant) store.Instant {
	if r.LeaseUntil == 0 {
		return now
	}
	return e.clockState(now).Leap.For(r.LeaseUntil.Add(-r.Policy.Lease), now)
}

// clockState is what is known of the store's clock at now.
func (e *Engine) clockState(now store.Instant) store.ClockState {
	if e.extras.Clock == nil {
		return store.ClockState{}
	}
	return e.extras.Clock.ClockState(now)
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
		Disposition: r.Disposition, Failure: r.Failure, Settled: r.Settled, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
}
