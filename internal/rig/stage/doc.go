// Package stage has what rigs, demos and storms share: programs that are killed and
// started again ([Process], [Node]), senders that repeat a call until it is answered
// ([Load]), and counts of what came of it ([Counts], [Upstream]).
//
// Its users decide which calls to send, and what must be true afterwards.
package stage
