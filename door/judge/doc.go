// Package judge says what an answer proves about work that somebody else does: whether it
// was done, whether nothing was done, or neither. All doors use its one table, for
// upstreams, providers, receivers of messages and handlers alike; see
// docs/what-a-5xx-means.md for the reasons (IDS-V.2).
//
// The package has no state, and its functions may be called concurrently.
package judge
