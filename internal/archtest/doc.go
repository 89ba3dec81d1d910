// Package archtest holds tests of the repository itself: which package may
// import which, that everything exported is documented, that the code and the
// commands in the documents work, and that the tree is clean. It has no code
// besides its tests. Each rule is a function from what it looks at to a list
// of faults, so that it is tested on faulty input too.
package archtest
