package semel

// Presents reports whether the call has the payload of a record. The record is compared in the
// way that its own fingerprint was made.
func (c *Call) Presents(rec *Record) bool {
	return rec.Fingerprint == c.Fingerprint ||
		c.SamePayload != nil && !rec.Fingerprint.IsZero() && c.SamePayload(rec.Fingerprint)
}
