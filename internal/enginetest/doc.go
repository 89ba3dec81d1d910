// Package enginetest has the tests of the root package that see what an embedder sees: they
// use nothing that isn't exported. It has no code of its own.
package enginetest
