package semel

// conceal keeps what is recorded from a caller whom nothing proves to be the one that it is
// about, see [Call].Unproved. The delivery gets what another caller's would.
func (d *delivery) conceal() {
	if !d.call.Unproved {
		return
	}
	switch cur := d.ans.Record; d.ans.Decision {
	case Replay, Conflict, Held, Superseded:
		d.ans.Decision = OtherCaller
		if running(cur, d.engine.leaseTime(cur, d.at.now)) {
			d.ans.Decision = InFlight // whatever its payload is
		}
	}
	d.foreign = true
}
