package store

// Entry is one entry of the evidence log, as a store keeps it. The store doesn't
// interpret its fields, and they don't change after the store got the entry.
type Entry struct {
	// Leaf is the part that the log proves: it never changes and is never deleted.
	Leaf []byte
	// Opening explains the leaf to readers with permission. It can be erased.
	Opening []byte
	// Subject is the entry's index key; zero for none.
	Subject Subject
	// Also has further index keys. A store doesn't have to return them.
	Also []Subject
	// Hash is the leaf's hash in the Merkle tree, or zero. It isn't stored: a store may
	// remember it for a while, so that it can extend the tree without reading the entry; see
	// [EvidenceHashes].
	Hash [32]byte
}

// Subject is a digest of the thing that entries are about.
type Subject [16]byte
