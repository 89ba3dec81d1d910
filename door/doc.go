// Package door is what the doors of this module have in common: the ways by which calls
// come in, such as HTTP routes, Forrst and commands. It has the codes with which a door
// refuses a call before the engine sees it, and what every code means to a caller,
// whatever protocol they speak.
//
// Package [github.com/semelhq/semel/door/doortest] says whether a door is right.
package door
