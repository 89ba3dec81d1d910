package config

// api refuses an execution API for strangers. What is begun there takes keys, fills
// the store, is signed in the evidence log and sends messages, so nobody may do it
// whom nobody knows; programs on this machine may, as long as only they are asked.
func (v *validator) api() {
	c := v.c
	const path, hint = "api", "add callers to auth, or write api: off"
	switch {
	case v.faulty[path] || v.faulty["auth"]:
	case c.API == APIVerified && !c.Auth.Configured():
		v.bad(path, "add callers to auth", "auth has no method by which a caller could be verified")
	case c.API != APIOpen || v.faulty["listen.address"]:
	case c.Auth.Configured():
		v.bad(path, "write verified, or leave it out", "auth has callers, and an open execution API would take made-up credentials beside them")
	case !loopback(c.Listen.Address):
		v.bad(path, hint, "%s can be reached from other machines, and nobody would have to say who they are to use the execution API", c.Listen.Address)
	case len(c.Dispatch.Destinations) > 0:
		v.bad(path, hint, "anybody on this machine could send messages to the destinations of dispatch, signed with their secrets")
	case c.Evidence.KeyFile != "":
		v.bad(path, hint, "anybody on this machine could write to the evidence log, in anybody's name")
	}
}

// ByAPI reports whether calls of an operation may be begun and ended over the
// execution API: those that a route uses may not, unless they say so. Otherwise a
// caller could write the answers that the route replays to others.
func (c *Config) ByAPI(operation string) bool {
	if op := c.operation(operation); op != nil && op.API {
		return true
	}
	for i := range c.Routes {
		if r := &c.Routes[i]; r.Operation == operation && r.Mode != "off" {
			return false
		}
	}
	return true
}
