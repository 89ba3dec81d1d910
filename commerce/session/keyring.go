package session

import (
	"errors"
	"fmt"
	"slices"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/semelhq/semel/store"
)

// Key is a key that tokens are encrypted with where they are stored.
type Key struct {
	// ID names the key in the tokens that it encrypts (kid). Up to 256 bytes.
	ID string
	// Secret is 32 random bytes.
	Secret []byte
}

// Keyring encrypts tokens as JWE in its compact form, RFC 7516: each with a key of its
// own (A256GCM), which is wrapped with a key of the ring (A256KW). So a ring may encrypt
// any number of tokens. Its methods may be called concurrently.
type Keyring struct{ keys []Key }

// NewKeyring makes a keyring. The first key encrypts, all of them decrypt.
//
// To rotate keys, give each node the new key as a further one, and when all have it, as
// the first one. Drop the old key when the sessions that it encrypted have expired.
func NewKeyring(keys ...Key) (*Keyring, error) {
	var errs []error
	if len(keys) == 0 {
		errs = append(errs, errors.New("session: a keyring needs a key"))
	}
	own := make([]Key, len(keys))
	for i, k := range keys {
		if k.ID == "" || len(k.ID) > store.MaxNameLen || !store.ValidText(k.ID) {
			errs = append(errs, fmt.Errorf("session: key %d: ID must have 1 to %d bytes of UTF-8 without NUL", i, store.MaxNameLen))
		}
		if len(k.Secret) != 32 {
			errs = append(errs, fmt.Errorf("session: key %d: Secret has %d bytes, not 32", i, len(k.Secret)))
		}
		if slices.ContainsFunc(keys[:i], func(other Key) bool { return other.ID == k.ID }) {
			errs = append(errs, fmt.Errorf("session: key %d: another key has the same ID", i))
		}
		own[i] = Key{k.ID, slices.Clone(k.Secret)}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Keyring{own}, nil
}

// boundTo is the protected header that names the session of a token, as the claim of this
// name does in a JWT. Whoever can write the store can't pass one session's token off as
// another's.
const boundTo = jose.HeaderKey("sid")

// seal encrypts a token for one session.
func (r *Keyring) seal(token []byte, session string) (string, error) {
	opts := (&jose.EncrypterOptions{}).WithHeader(boundTo, session)
	e, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{Algorithm: jose.A256KW, Key: r.keys[0].Secret, KeyID: r.keys[0].ID}, opts)
	if err != nil {
		return "", err
	}
	sealed, err := e.Encrypt(token)
	if err != nil {
		return "", err
	}
	return sealed.CompactSerialize()
}

// ErrSealed says that a token can't be decrypted, because the keyring lacks its key or because
// it isn't the one stored for the session. It says nothing about the user's proof.
var ErrSealed = errors.New("session: the stored token can't be decrypted")

// open decrypts what seal made for the same session.
func (r *Keyring) open(sealed, session string) ([]byte, error) {
	jwe, err := jose.ParseEncryptedCompact(sealed, []jose.KeyAlgorithm{jose.A256KW}, []jose.ContentEncryption{jose.A256GCM})
	if err != nil {
		return nil, fmt.Errorf("%w: it isn't a JWE of this package", ErrSealed)
	}
	i := slices.IndexFunc(r.keys, func(k Key) bool { return k.ID == jwe.Header.KeyID })
	if i < 0 {
		return nil, fmt.Errorf("%w: the keyring has no key %.64q", ErrSealed, jwe.Header.KeyID)
	}
	token, err := jwe.Decrypt(r.keys[i].Secret)
	if err != nil {
		return nil, fmt.Errorf("%w with the key %.64q", ErrSealed, r.keys[i].ID)
	}
	if jwe.Header.ExtraHeaders[boundTo] != session {
		return nil, fmt.Errorf("%w: it belongs to another session", ErrSealed)
	}
	return token, nil
}
