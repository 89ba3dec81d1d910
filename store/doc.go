// Package store is the record model of semel, and the contract between its engine and
// the stores that keep records.
//
// A store does one thing: an atomic, durable compare-and-set for each identity. It has
// four verbs, see [Store]; everything else is optional, see [Extras]. Only the engine
// decides, so no two stores can disagree about what a delivery gets.
//
// If you write a store you need this package, package codec for the bytes of a record,
// and package storetest, which is the contract as tests. docs/writing-a-store.md takes
// you through it.
package store
