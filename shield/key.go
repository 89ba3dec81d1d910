package shield

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/safehttp"
)

// WithKey returns a context that makes [KeyTransport] send the key of the named effect of the
// call (IDS-XI.S1). The key is the same in all attempts of the call. WithKey doesn't write the
// ledger: an unanswered request may be sent again, and only the provider can recognise it, so
// its window must be longer than the operation's.
//
// [semel.CodeUnsupported] means that the holder isn't in this process; there you get the
// key with the effect.
func WithKey(ctx context.Context, x semel.Execution, name string) (context.Context, error) {
	r, ok := x.(interface{ Record() *semel.Record })
	if !ok {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "this execution can't tell the keys of its effects"}
	}
	return withKey(ctx, semel.EffectKey(r.Record(), name)), nil
}

// WithOwnKey is WithKey for a key that you give, such as that of a payment. Keys of one
// account at a provider must not be given to two effects: it would answer the second with
// the outcome of the first.
func WithOwnKey(ctx context.Context, key string) context.Context { return withKey(ctx, key) }

type keyKey struct{}

func withKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// KeyTransport is an [http.RoundTripper] that adds the key of its context to each request
// that changes something, in the provider's form. A request without a key, or with
// another one, is refused before anything is sent. A request is sent at most once.
//
// You may use a KeyTransport concurrently; don't change it after its first use.
type KeyTransport struct {
	Provider Provider
	// Base makes the connections, see [safehttp.Transport]. Required, because
	// it keeps connections: make one for each Base, and keep it.
	Base *safehttp.Transport
}

// ProviderKey makes a [KeyTransport]. base may be nil, for [http.DefaultTransport].
func ProviderKey(p Provider, base http.RoundTripper) *KeyTransport {
	safe, ok := base.(*safehttp.Transport)
	if !ok {
		safe = &safehttp.Transport{Base: base}
	}
	return &KeyTransport{Provider: p, Base: safe}
}

// RoundTrip sends the request with its key. If [NothingSent] is true for its error, there
// was no effect.
func (t *KeyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return t.Base.RoundTrip(r)
	}
	key, ok := r.Context().Value(keyKey{}).(string)
	if !ok {
		closeBody(r)
		return nil, &unsent{errors.New("shield: the request changes something and has no key: use WithKey or Client")}
	}
	out, err := t.Provider.sign(r, key)
	if err != nil {
		closeBody(r)
		return nil, &unsent{err}
	}
	return t.Base.RoundTrip(out)
}

// unsent is an error from before anything was sent.
type unsent struct{ err error }

func (e *unsent) Error() string { return e.err.Error() }
func (e *unsent) Unwrap() error { return e.err }

// NothingSent reports whether err proves that not a byte of a request was sent. For
// every other error it is false, which proves nothing.
func NothingSent(err error) bool {
	_, ok := errors.AsType[*unsent](err)
	return ok || safehttp.NothingSent(err)
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// sign returns a copy of r with the key for an effect. It sends nothing.
func (p *Provider) sign(r *http.Request, effectKey string) (*http.Request, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	key := p.Key(effectKey)
	out := r.Clone(r.Context())
	if p.Header != "" {
		if out.Header.Get(p.Header) != "" {
			return nil, fmt.Errorf("shield: the request has a %s already", p.Header)
		}
		value := key
		if p.Quoted {
			value = strconv.Quote(key)
		}
		if out.Header == nil {
			out.Header = http.Header{}
		}
		out.Header.Set(p.Header, value)
	}
	if p.Field == "" {
		return out, nil
	}
	return out, setField(out, p.Field, key)
}

// maxSigned bounds a body that gets a key, in bytes.
const maxSigned = 1 << 20

// setField puts the key into the body, and leaves its other bytes unchanged.
func setField(r *http.Request, field, key string) error {
	if r.Body == nil {
		return errors.New("shield: the request has no body to put the key into")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSigned+1))
	if err != nil {
		return fmt.Errorf("shield: read the request's body: %w", err)
	}
	if len(body) > maxSigned {
		return fmt.Errorf("shield: the body is longer than %d bytes", maxSigned)
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("shield: the request's Content-Type: %w", err)
	}
	switch media {
	case "application/json":
		if body, err = setJSON(body, field, key); err != nil {
			return err
		}
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return fmt.Errorf("shield: the form: %w", err)
		}
		if form.Has(field) {
			return fmt.Errorf("shield: the form has a %s already", field)
		}
		if len(body) > 0 {
			body = append(body, '&')
		}
		body = append(body, url.QueryEscape(field)+"="+url.QueryEscape(key)...)
	default:
		return fmt.Errorf("shield: no key can be put into a body of type %s", media)
	}
	_ = r.Body.Close()
	r.Body, r.ContentLength, r.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.Header.Del("Content-Length")
	return nil
}

func setJSON(body []byte, field, key string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, errors.New("shield: the body is no JSON object")
	}
	if _, ok := members[field]; ok {
		return nil, fmt.Errorf("shield: the body has a %s already", field)
	}
	name, err := json.Marshal(field)
	if err != nil {
		return nil, err
	}
	open := bytes.IndexByte(body, '{')
	member := fmt.Appendf(nil, "%s:%q", name, key) // a key needs no escaping
	if len(members) > 0 {
		member = append(member, ',')
	}
	return append(append(append([]byte(nil), body[:open+1]...), member...), body[open+1:]...), nil
}
