// Command mutate looks for behaviour that no test would miss: it makes small changes
// to the source, one at a time, and runs the tests that ought to notice. A change that
// all of them accept is a survivor. The tree is never touched; the go command is given
// each changed file as an overlay.
//
// Usage, in the module root, by way of scripts/mutate, which describes the flags:
//
//	go run ./internal/mutate [-n 200] [-seed 1] [-packages .,./store/...] [-list] [-out file]
//
// Survivors that are known, with the reason why each is accepted, are in
// scripts/mutate.survivors. One that is not among them makes the run fail.
package main
