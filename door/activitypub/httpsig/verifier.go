package httpsig

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Defaults of [Options].
const (
	DefaultMaxAge  = 12 * time.Hour // common in the fediverse
	DefaultMaxSkew = time.Hour
)

// Options configure a [Verifier].
type Options struct {
	// Keys has the signers' keys. Required.
	Keys *Keys
	// MaxAge is how old a signature may be, by each of its times. Defaults to 12 hours: servers
	// of the fediverse deliver from queues that run late.
	MaxAge time.Duration
	// MaxSkew is how far in the future its times may be. Defaults to 1 hour, or to MaxAge if
	// that is shorter.
	MaxSkew time.Duration
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
	// Base is the scheme and the host that senders use to reach this server, such as
	// https://social.example. By default they come from the connection and the request: then
	// behind a proxy that ends TLS no signature of @target-uri is right, and somebody who gets
	// a request for another server can send it to this one, too.
	Base *url.URL
	// Sender returns the address of a request's sender, because the number of concurrent
	// fetches for each is limited; empty if unknown. Defaults to the connection's address,
	// unless that is a loopback address.
	Sender func(*http.Request) string
}

// Verifier finds out who signed a request. It may be used concurrently.
type Verifier struct {
	keys      *Keys
	age, skew time.Duration
	now       func() time.Time
	base      *url.URL
	sender    func(*http.Request) string
}

// New checks the options.
func New(opts Options) (*Verifier, error) {
	v := &Verifier{keys: opts.Keys, age: cmp.Or(opts.MaxAge, DefaultMaxAge), now: opts.Now, sender: opts.Sender}
	v.skew = cmp.Or(opts.MaxSkew, min(v.age, DefaultMaxSkew))
	switch {
	case opts.Keys == nil:
		return nil, errors.New("httpsig: a verifier needs keys")
	case v.age < 0 || v.skew < 0:
		return nil, errors.New("httpsig: the age and the skew of signatures can't be negative")
	}
	if b := opts.Base; b != nil {
		scheme := strings.ToLower(b.Scheme)
		if (scheme != "http" && scheme != "https") || b.Host == "" || strings.Trim(b.Path, "/") != "" || b.RawQuery != "" || b.User != nil {
			return nil, errors.New("httpsig: the base is http or https and a host, without a path or credentials")
		}
		v.base = &url.URL{Scheme: scheme, Host: b.Host}
	}
	if v.now == nil {
		v.now = time.Now
	}
	if v.sender == nil {
		v.sender = remoteAddress
	}
	return v, nil
}

// Signer says who signed a request.
type Signer struct {
	// Actor is the id of the key's owner, which has the origin of the key.
	Actor string
	KeyID string
	// Form is "rfc9421" or "cavage".
	Form string
}

// Verify returns who signed a request with this body, which it doesn't read from the request.
// If the request has several signatures (RFC 9421), the first that covers enough decides,
// because each could cost a fetch. It may fetch the key, until the request's context ends and
// for at most [KeysOptions].Timeout. Its errors are of type [*Error].
func (v *Verifier) Verify(r *http.Request, body []byte) (Signer, error) {
	return v.VerifyActor(r, body, "")
}

// VerifyActor is Verify for a request that has to be signed by an actor; empty for anybody. A
// key of another origin than the actor's can't be the actor's, so its signatures count as
// missing: if there are no others, the error has the code [OtherSigner], and nothing is
// fetched. The signer may still be another actor of that origin.
func (v *Verifier) VerifyActor(r *http.Request, body []byte, actor string) (Signer, error) {
	if len(r.Header["Signature"]) == 0 && len(r.Header["Signature-Input"]) == 0 {
		return Signer{}, refuse(SignatureMissing, "the request has no signature")
	}
	if err := bounded(r.Header); err != nil {
		return Signer{}, err
	}
	q, err := requestOf(r, v.base)
	if err != nil {
		return Signer{}, &Error{Code: SignatureMalformed, Err: err}
	}
	ctx, cancel := context.WithTimeout(withSender(r.Context(), v.sender(r)), v.keys.fetch.client.Timeout)
	defer cancel()
	if len(r.Header["Signature-Input"]) == 0 {
		s, err := readCavage(r.Header, q)
		if err == nil {
			err = s.mayBeOf(actor)
		}
		if err == nil {
			err = v.check(q, body, s)
		}
		if err != nil {
			return Signer{}, err
		}
		return v.verify(ctx, s)
	}
	m, err := readMessage(r.Header)
	if err != nil {
		return Signer{}, err
	}
	var first error
	for _, label := range m.labels {
		s, err := m.read(label, q.component)
		if err == nil {
			err = s.mayBeOf(actor)
		}
		if err == nil {
			err = v.check(q, body, s)
		}
		if err == nil {
			return v.verify(ctx, s) // each could make this server fetch something
		}
		first = cmp.Or(first, err)
	}
	return Signer{}, first
}

// mayBeOf returns an error if the signature's key can't be the actor's: an owner has the origin
// of the key.
func (s *signature) mayBeOf(actor string) error {
	if actor == "" {
		return nil
	}
	key, err := url.Parse(s.keyID)
	if err != nil {
		return refuse(KeyRefused, "the id of the key is not a URL with https and a host")
	}
	if home, err := url.Parse(actor); err != nil || origin(key) != origin(home) {
		return refuse(OtherSigner, "the request is signed for another server than that of the actor")
	}
	return nil
}

// check checks everything about a signature that doesn't need its key, so that a request that
// is refused anyway causes no fetch.
func (v *Verifier) check(q *request, body []byte, s *signature) error {
	withBody := hasBody(q, body)
	if err := s.sufficient(q, withBody); err != nil {
		return err
	}
	if err := s.timely(q.header, v.now(), v.age, v.skew); err != nil {
		return err
	}
	if !withBody {
		return nil
	}
	if s.form == FormCavage {
		return checkDigest(q.header, body)
	}
	return checkContentDigest(q.header, body)
}

// verify gets a signature's key and verifies the signature.
func (v *Verifier) verify(ctx context.Context, s *signature) (Signer, error) {
	began := v.keys.now()
	key, err := v.keys.Get(ctx, s.keyID)
	if err != nil {
		return Signer{}, err
	}
	if err = check(key.Public, s.algorithm, s.form, s.text, s.value); err != nil {
		fresh, again := v.keys.renew(ctx, key, began)
		if again != nil {
			return Signer{}, again
		}
		if fresh != key {
			key, err = fresh, check(fresh.Public, s.algorithm, s.form, s.text, s.value)
		}
	}
	if err != nil {
		return Signer{}, err
	}
	if at, err := url.Parse(s.keyID); err == nil {
		v.keys.fetch.slots.delivered(origin(at))
	}
	return Signer{Actor: key.Owner, KeyID: s.keyID, Form: s.form}, nil
}

// hasBody reports whether a signature must cover the body, even an empty one.
func hasBody(q *request, body []byte) bool {
	return len(body) > 0 || (q.method != http.MethodGet && q.method != http.MethodHead)
}
