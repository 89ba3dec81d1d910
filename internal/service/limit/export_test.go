package limit

// Acquire takes n bytes for a caller, without waiting. If ok is false, nothing was taken
// and release is nil. Otherwise release gives the bytes back; calling it again does
// nothing.
func (b *Budget) Acquire(caller Caller, n int64) (release func(), ok bool) {
	h := &hold{budget: b, caller: caller}
	if h.grow(n) != nil {
		return nil, false
	}
	return h.release, true
}

// InFlight returns how many bytes are taken, and by how many tenants.
func (b *Budget) InFlight() (bytes int64, tenants int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s, n := range b.used {
		switch s.whose {
		case "server":
			bytes = n
		case "tenant":
			tenants++
		}
	}
	return bytes, tenants
}
