// Package canon reads JSON strictly and writes it in canonical form, so that two texts that
// mean the same have the same bytes and can be compared, hashed and signed (IDS-VII.3).
//
// # Form
//
// The form is that of RFC 8785 (JSON Canonicalization Scheme): no white space; object members
// sorted by the UTF-16 code units of their unescaped names; strings in UTF-8, unnormalised,
// with only the escapes that JSON demands, in their shortest spelling; numbers as ECMAScript
// writes them. Array elements keep their order.
//
// Numbers are the one point where RFC 8785 loses information: it reads each as the nearest IEEE
// 754 binary64, so 9007199254740993 and 9007199254740992 come out alike. [Mode] chooses between
// that ([JCS]) and the same layout over the exact decimal digits ([Exact]), in which texts are
// equal if and only if the values are.
//
// # What is refused
//
// The reader accepts the grammar of RFC 8259 and nothing else. It also refuses what other
// readers quietly interpret, each in their own way: duplicate member names (compared after
// unescaping), invalid UTF-8, surrogates without their partner, a byte order mark, bytes after
// the value, and nesting beyond [MaxDepth]. A refusal is a [*SyntaxError] with the byte offset;
// its message never repeats the input, which may be secret.
//
// # Cost
//
// Time is linear in the length of the input, except for sorting members, which is O(n log n)
// even for names chosen by an attacker. Memory is proportional to the input; nesting is tracked
// on an explicit stack, so no input can exhaust the goroutine's. A pool keeps scratch space,
// but only small buffers. All functions may be called concurrently.
//
// The output is part of stored fingerprints: changing it for any accepted input is a change of
// format.
package canon
