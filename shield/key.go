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
	"github.com/semelhq/semel/transport/semelhttp"
)

// WithKey lets requests made with the context carry the key of the named effect of
// the call, by [KeyTransport] (IDS-XI.S1). The key is the same in all attempts of the
// call. The ledger is not written: whether a request that was not answered is sent
// again is for the provider to bear, so its window must be longer than that of the
// operation.
//
// [semel.CodeUnsupported] means that the holder is not in this process; there the key
// comes with the effect.
func WithKey(ctx context.Context, x semel.Execution, name string) (context.Context, error) {
	r, ok := x.(interface{ Record() *semel.Record })
	if !ok {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "this execution can't tell the keys of its effects"}
	}
	return withKey(ctx, r.Record().EffectKey(name)), nil
}

type keyKey struct{}

func withKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// KeyTransport is an [http.RoundTripper] that gives each request that changes
// something the key of its context, as the provider takes it. One without a key, or
// that has another already, is refused before anything is sent. A request is sent at
// most once.
//
// It may be used concurrently and may not be changed after its first use.
type KeyTransport struct {
	Provider Provider
	// Base makes the connections, see [semelhttp.SafeTransport]. Required, because
	// it keeps connections: make one for each Base, and keep it.
	Base *semelhttp.SafeTransport
}

// ProviderKey makes a [KeyTransport]. base may be nil, for [http.DefaultTransport].
func ProviderKey(p Provider, base http.RoundTripper) *KeyTransport {
	safe, ok := base.(*semelhttp.SafeTransport)
	if !ok {
		safe = &semelhttp.SafeTransport{Base: base}
	}
	return &KeyTransport{Provider: p, Base: safe}
}

// RoundTrip sends the request with its key. An error of which [NothingSent] is true
// proves that there was no effect.
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

// unsent is an error that came before anything was sent.
type unsent struct{ err error }

func (e *unsent) Error() string { return e.err.Error() }
func (e *unsent) Unwrap() error { return e.err }

// NothingSent reports whether err proves that not a byte of a request was sent. For
// every other error it is false, which proves nothing.
func NothingSent(err error) bool {
	_, ok := errors.AsType[*unsent](err)
	return ok || semelhttp.NothingSent(err)
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// sign is a copy of r with the key for an effect. Nothing was sent yet.
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

// maxSigned bounds a body into which a key is put.
const maxSigned = 1 << 20

// setField puts the key into the body, whose other bytes stay as they are.
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
	member := fmt.Appendf(nil, "%s:%q", name, key) // a key has no character to escape
	if len(members) > 0 {
		member = append(member, ',')
	}
	return append(append(append([]byte(nil), body[:open+1]...), member...), body[open+1:]...), nil
}
