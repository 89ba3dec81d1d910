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
	DefaultMaxAge  = 12 * time.Hour // what the fediverse accepts
	DefaultMaxSkew = time.Hour
)

// Options configure a [Verifier].
type Options struct {
	// Keys has the signers' keys. Required.
	Keys *Keys
	// MaxAge is how old a signature may be, by each time that it signs. Defaults to
	// 12 hours: servers of the fediverse deliver from queues that run late.
	MaxAge time.Duration
	// MaxSkew is how far in the future its times may lie. Defaults to 1 hour, or to
	// MaxAge if that is shorter.
	MaxSkew time.Duration
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
	// Base is the scheme and the host that senders use to reach this server, such as
	// https://social.example. Without it they are taken from the connection and the
	// request: behind a proxy that ends TLS no signature of @target-uri is right then,
	// and whoever gets a request for another server can send it to this one, too.
	Base *url.URL
}

// Verifier tells who signed a request. Concurrent use is fine.
type Verifier struct {
	keys      *Keys
	age, skew time.Duration
	now       func() time.Time
	base      *url.URL
}

// New checks the options.
func New(opts Options) (*Verifier, error) {
	v := &Verifier{keys: opts.Keys, age: cmp.Or(opts.MaxAge, DefaultMaxAge), now: opts.Now}
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
	return v, nil
}

// Signer is who signed a request.
type Signer struct {
	// Actor is the id of the key's owner, which has the origin of the key.
	Actor string
	KeyID string
	// Form is "rfc9421" or "cavage".
	Form string
}

// Verify tells who signed a request with this body, which it doesn't read from the
// request. If the request has several signatures (RFC 9421), the first that is right
// counts. It may fetch the key, until the request's context ends. Its errors are of type
// [*Error].
func (v *Verifier) Verify(r *http.Request, body []byte) (Signer, error) {
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
	if len(r.Header["Signature-Input"]) == 0 {
		s, err := readCavage(r.Header, q)
		if err != nil {
			return Signer{}, err
		}
		return v.verify(r.Context(), q, body, s)
	}
	m, err := readMessage(r.Header)
	if err != nil {
		return Signer{}, err
	}
	var first error
	for _, label := range m.labels {
		s, err := m.read(label, q.component)
		if err == nil {
			var who Signer
			if who, err = v.verify(r.Context(), q, body, s); err == nil {
				return who, nil
			}
		}
		// While the key of one can't be had, it is unknown whether the request is
		// signed.
		if first == nil || hasCode(err, KeyUnavailable) {
			first = err
		}
	}
	return Signer{}, first
}

// verify verifies one signature. It asks for the key last, so that a request which is
// refused anyway makes this server fetch nothing.
func (v *Verifier) verify(ctx context.Context, q *request, body []byte, s *signature) (Signer, error) {
	withBody := hasBody(q, body)
	if err := s.sufficient(q, withBody); err != nil {
		return Signer{}, err
	}
	if err := s.timely(q.header, v.now(), v.age, v.skew); err != nil {
		return Signer{}, err
	}
	if withBody {
		compare := checkContentDigest
		if s.form == FormCavage {
			compare = checkDigest
		}
		if err := compare(q.header, body); err != nil {
			return Signer{}, err
		}
	}
	key, err := v.keys.Get(ctx, s.keyID)
	if err != nil {
		return Signer{}, err
	}
	if err = check(key.Public, s.algorithm, s.form, s.text, s.value); err != nil {
		fresh, again := v.keys.renew(ctx, key)
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
	return Signer{Actor: key.Owner, KeyID: s.keyID, Form: s.form}, nil
}

// hasBody reports whether a signature must cover the body, though it be empty.
func hasBody(q *request, body []byte) bool {
	return len(body) > 0 || (q.method != http.MethodGet && q.method != http.MethodHead)
}
