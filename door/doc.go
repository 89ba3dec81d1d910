// Package door has what all doors of this module share. A door is a way for calls to come in,
// such as HTTP routes, Forrst and commands. The package has the codes with which a door refuses
// a call before the engine sees it, and what every code means to a caller, whatever the
// protocol.
//
// Package [github.com/semelhq/semel/door/doortest] tests whether a door is right.
package door
