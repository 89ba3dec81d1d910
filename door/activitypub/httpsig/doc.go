// Package httpsig verifies and makes HTTP signatures as servers of ActivityPub use them, in two
// forms: HTTP Message Signatures (RFC 9421), and the draft from which they came,
// draft-cavage-http-signatures-12, which most of the fediverse still speaks. If a request has
// both, the RFC's decides, and if it fails, the other form doesn't matter.
//
// # What a signature must cover
//
// A signature proves only what it covers, so [Verifier.Verify] refuses one that leaves out
// something that a forger could change for another effect:
//
//   - the method, the host and the target with its query: otherwise a signed activity
//     could be sent to another inbox or another server. In RFC 9421 that is @method with
//     @target-uri; or @method with @authority or host, and @request-target, or @path and
//     @query (@query may be absent where there is none). In the draft it is
//     (request-target) and host. Some servers leave the query out of (request-target),
//     so give your inboxes none.
//   - the body, by its digest: Content-Digest with sha-256 or sha-512, or Digest with
//     SHA-256 in the draft. Only a GET or HEAD without a body needs none.
//   - the time: the parameter created, or the field date. Otherwise a signature could be
//     replayed for ever. Within the accepted time it still can be, so deduplicate by the
//     activity's id.
//
// It refuses components with parameters (such as sf, key and bs), and @query-param: no server
// of ActivityPub sends them.
//
// # Algorithms
//
// The key decides: RSA goes with rsa-v1_5-sha256 and rsa-pss-sha512 (in the draft with
// rsa-sha256 and rsa-sha512), P-256 with ecdsa-p256-sha256 (ecdsa-sha256), Ed25519 with
// ed25519. It refuses a signature that names a weak algorithm, or one for another kind of key.
// If it names none, or hs2019 in the draft, each algorithm of the key is tried.
//
// # Keys
//
// A key's id is the URL of a document that names the key's owner; [Keys] fetches it, and checks
// that the owner says the same. Strangers choose these URLs, so [Keys] bounds the load that
// they can cause.
package httpsig
