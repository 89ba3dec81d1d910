package config

import "slices"

// api refuses an execution API for strangers. Its callers use up keys, fill the store,
// get their calls signed in the evidence log and send messages. So unknown callers may
// use it only from this machine, and only as long as that stays harmless.
func (v *validator) api() {
	c := v.c
	const path, hint = "api", "add callers to auth, or write api: off"
	switch {
	case v.Faulty[path] || v.Faulty["auth"]:
	case c.API == APIVerified && !c.Auth.Configured():
		v.bad(path, "add callers to auth", "auth has no method by which a caller could be verified")
	case c.API != APIOpen || v.Faulty["listen.address"]:
	case c.Auth.Configured():
		v.bad(path, "write verified, or leave it out", "auth has callers, and an open execution API would also accept made-up credentials")
	case !loopback(c.Listen.Address):
		v.bad(path, hint, "%s can be reached from other machines, and the execution API would need no credential", c.Listen.Address)
	case len(c.Dispatch.Destinations) > 0:
		v.bad(path, hint, "anybody on this machine could send messages to the destinations of dispatch, signed with their secrets")
	case c.Evidence.KeyFile != "":
		v.bad(path, hint, "anybody on this machine could write to the evidence log, in anybody's name")
	}
}

// ByAPI reports whether calls of an operation may begin and end over the execution API.
// Operations of routes, of functions over Forrst and of agents may not, unless they say so;
// otherwise a caller could write the answers that the route replays to others.
func (c *Config) ByAPI(operation string) bool {
	if op := c.operation(operation); op != nil && op.API {
		return true
	}
	return !slices.ContainsFunc(c.Routes, func(r Route) bool { return r.Operation == operation && r.Mode != "off" }) &&
		!slices.ContainsFunc(doorSections, func(s doorSection) bool { return s.uses != nil && slices.Contains(s.uses(c), operation) })
}
