// Package door has what all doors of this module share. A door is a way for calls to come in,
// such as HTTP routes, Forrst and commands. The package has the codes that a door refuses a
// call with before the engine sees it, and what every code means to a caller, whatever
// protocol they speak.
//
// Package [github.com/semelhq/semel/door/doortest] says whether a door is right.
package door
