// Package against compares this version of Semel with another commit of it: the same load,
// built in both trees, takes turns on the same servers, and what counts is the ratio within
// a round. Run it with make bench-against COMMIT=…. It has only a test, which starts the
// servers.
package against
