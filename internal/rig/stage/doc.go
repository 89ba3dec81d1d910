// Package stage has what rigs, demos and storms share: programs that are killed and
// started again ([Process], [Node]), senders that repeat a call until it is answered
// ([Load]), counts of what came of it ([Counts], [Upstream]), and the toys and requests of
// demos ([Toy], [Show]).
//
// Its users decide which calls to send, and what must be true afterwards.
package stage
