// Package agents has tests that put foreign programs of agents before the gateway of MCP: the
// official conformance suite and stock clients, over networks that cut connections, while the
// gateway's process is killed. It has no code that a program could use.
//
// scripts/install-sdks installs the programs, and make prove runs the tests.
package agents
