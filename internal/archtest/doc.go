// Package archtest has the tests of the repository itself: which package may import
// which, that everything exported is documented, that the code and the commands in the
// documents work, and that the tree is clean. It has only tests. Each rule is a function
// that returns a list of faults, so that it can be tested on faulty input too.
package archtest
