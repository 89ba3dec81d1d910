// Package others judges what people use today to keep a retried request from being executed
// twice, and Semel beside it, by 'semel check http', and writes docs/others.md with what it
// found. Each is a small server of its own, in a process of its own that a check can kill, with
// the packages at the pinned version and as their own documentation says.
//
// It is a module of its own, so that users of Semel don't get the others' dependencies. Run it
// with make prove-others. It has only tests: they start the servers.
package others
