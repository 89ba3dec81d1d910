// Package server is the service: one process that guards upstreams as a reverse
// proxy, gives programs in any language the execution API, and attends to records
// that nobody asks for. It puts the other packages together by one configuration
// and decides nothing about calls itself.
package server
