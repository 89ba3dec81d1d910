// Package figures counts what happens to deliveries, for people: how many of them are
// duplicates, which keys arrive again and again or at the same time, which calls keep
// failing, and what Semel adds to their time. The figures cover all nodes of a store and
// survive restarts.
//
// Each node counts its engine's [semel.Events] in memory, and once a second writes its own
// cells of the store in the background: no delivery waits for it. Readers add up the cells of
// all nodes. So the figures of other nodes are at most two seconds late, while the store
// answers. A node that dies loses its counts since its last write, at most a second of
// figures. So a count may be too low, but never too high.
//
// Each tenant has figures of its own, as far as there is room; see [Figures.Read].
// [Figures.Nodes] lists the nodes that run.
//
// A program with its own engine makes a [Figures], adds its events to the engine's and calls
// Run; [Figures.Read] is the same as GET /v1/figures of the service.
package figures
