// Package evidence is the tamper-evident log of what happened to calls: an append-only Merkle
// tree (RFC 6962, as in the Go checksum database) over entries that the store writes in the
// same step as the records that they are about.
//
// A [Log] is the [semel.Witness] of an engine. An entry has two parts. The leaf is the part
// that the tree proves: it names no one, and is never deleted. The opening says in clear what
// and whom the leaf is about; the leaf commits to it by a salted digest, and it can be erased.
// Neither ever has a payload, a result or a token. [Artifact], [Opening] and the published
// [Schema] explain the members.
//
// [Log.Run] integrates numbered entries into the tree and signs a checkpoint each second:
// origin, size and root, in the form of C2SP's tlog-checkpoint. The current one is a
// [store.Cell], changed by compare-and-set, so any number of nodes make one log. After a crash
// at any point some leaves may not be integrated yet, or tiles of the tree are written again
// with the same content.
//
// [Reader.Export] writes a log, or what one tenant may see of it, to a file that [Verify] can
// check with just the public key.
//
// # Limits
//
// Whoever owns both the store and the signing key can write another history. Only a checkpoint
// from elsewhere exposes that: see [Keeper]. A deleted opening looks like one that was erased
// legitimately.
package evidence
