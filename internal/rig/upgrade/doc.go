// Package upgrade has tests that fill a store by an earlier program and ask the present one
// about each call: nothing runs again, nothing vanishes from lists and counts, every answer is
// the same. It has no code that a program could use.
//
// Compensations have no door of the service; package codec has recorded files of them.
package upgrade
