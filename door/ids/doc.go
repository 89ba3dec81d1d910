// Package ids is the protocol of commands: it derives one key from the meaning of each command,
// so that all deliveries of it are recognised as the same call (RFC-WF-0010, Idempotency &
// Delivery Semantics).
//
// A delivery brings an envelope, a [Command]. A [Registry] declares each kind of command: its
// protection (class, window, shields), its arguments and how to normalise them, whom it is bound
// to, who may run and read it, and what runs it. [Registry.Derive] joins the two into a
// [Derivation], which has the key.
//
// # The key
//
// The key is "ids1:" and the lower-case hexadecimal SHA-256 of the canonical key inputs
// (IDS-VII.5). These are one JSON object with a fixed set of members:
//
//	tenant_id                      always (IDS-XV.1)
//	actor_id or effective_actor_id always, exactly one of them, by its own name (IDS-VII.6)
//	intent.entity, intent.action   always
//	intent.target                  where the envelope has it; null is not the same as absent
//	args                           always, normalised; {} where the envelope has none
//	command_kind                   where the registry declares one, or the envelope has one
//
// The order of targets counts, as in all arrays; arguments that are sets are declared as sets,
// and sorted.
//
// # The canonical form
//
// It is that of RFC 8785 (IDS-VII.3): members sorted by the UTF-16 code units of their names, no
// white space, the shortest escapes, strings as they are: Unicode is not normalised, so a
// composed and a decomposed "é" are two texts. Numbers are written as ECMAScript writes them, so
// 1, 1.0 and 1e0 are one number, and so are 0 and -0. A number that binary64 would change keeps
// its exact decimal digits instead: 9007199254740993 stays 9007199254740993, so that two amounts
// never share a key. Duplicate member names, invalid UTF-8 and lone surrogates are refused.
//
// # What never enters
//
// command_id, correlation_id, trace, sent_at, received_at, idempotency_key, confirmation_token
// and step_up aren't part of the key. Arguments that differ between deliveries of one command
// (the current time, message ids, random tokens) are stripped if the registry says so; if it
// doesn't mention an argument with such a name, the envelope is refused (IDS-VII.4). Without a
// registry entry such arguments are stripped.
//
// testdata/vectors.json has vectors for other implementations; EnvelopeSchema is the JSON Schema
// of envelopes.
package ids
