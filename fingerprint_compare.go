package semel

// sameFingerprint reports whether a delivery has the payload of the stored call. A record is
// compared in the way that its own fingerprint was made.
func sameFingerprint(call *Call, cur *Record) bool {
	return cur.Fingerprint == call.Fingerprint ||
		call.SamePayload != nil && !cur.Fingerprint.IsZero() && call.SamePayload(cur.Fingerprint)
}
