// Command mutate looks for behaviour that no test checks (mutation testing): it makes small
// changes to the source, one at a time, and runs the tests that ought to fail. If they all
// pass, the change is a survivor. The command never changes your tree; it passes each changed
// file to the go command as an overlay.
//
// Usage, in the module root, by way of scripts/mutate, which describes the flags:
//
//	go run ./internal/rig/mutate [-n 200] [-seed 1] [-packages .,./store/...] [-list] [-out file]
//
// Known survivors are in scripts/mutate.survivors, each with the reason why it is accepted. Any
// other survivor makes the run fail.
//
// With -clauses it plants the faults of internal/rig/clause/faults.tsv instead, one for each
// clause of the specifications, and runs the test that is named beside each:
//
//	go run ./internal/rig/mutate -clauses all|IDS-X,CORE [-tenth 3]
package main
