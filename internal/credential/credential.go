// Package credential tells callers apart by their credentials, which nobody has verified. It
// finds the parts that name a caller, digests them, and says which keys are safe to share on
// such thin evidence.
package credential

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
)

// Usual are the headers that usually authenticate callers.
var Usual = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "Plaid-Client-Id", "Plaid-Secret",
}

// Prefix begins every digest of a [Set].
const Prefix = "credential:"

// cookiePrefix begins the name of a credential that is a single cookie.
const cookiePrefix = "cookie:"

// Set is the credentials that tell callers apart.
type Set struct {
	headers []header // sorted by name
	cookies []string // sorted
	names   []string // as declared, for people
}

// header is a header that may have a credential, to use whole or in parts.
type header struct {
	name  string // in canonical form
	whole bool
	parts []string // the ones that name the signer, see [signing]
}

// New makes a set from names of headers, parts of signed headers such as
// "Authorization:Credential", and "cookie:" followed by the name of a cookie. [Fault]
// checks each name.
func New(names []string) Set {
	c := Set{names: names}
	for _, name := range names {
		if cookie, ok := strings.CutPrefix(name, cookiePrefix); ok {
			c.cookies = append(c.cookies, cookie)
			continue
		}
		name, part, partial := strings.Cut(name, ":")
		name = http.CanonicalHeaderKey(name)
		at, found := slices.BinarySearchFunc(c.headers, name, func(have header, name string) int { return strings.Compare(have.name, name) })
		if !found {
			c.headers = slices.Insert(c.headers, at, header{name: name})
		}
		if partial {
			c.headers[at].parts = append(c.headers[at].parts, part)
		} else {
			c.headers[at].whole = true
		}
	}
	slices.Sort(c.cookies)
	c.cookies = slices.Compact(c.cookies)
	return c
}

// Headers lists the request headers that the set reads.
func (c *Set) Headers() (names []string) {
	for _, cr := range c.headers {
		names = append(names, cr.name)
		if cr.name == signatureHeader {
			names = append(names, signatureInput)
		}
	}
	return names
}

// Fault says why no set can have the name; empty if one can.
func Fault(name string) string {
	if name == "" || name == cookiePrefix {
		return "which names neither a header nor a cookie"
	}
	header, part, partial := strings.Cut(name, ":")
	if !partial || strings.HasPrefix(name, cookiePrefix) {
		return ""
	}
	parts := signers(http.CanonicalHeaderKey(header))
	switch {
	case len(parts) == 0:
		return "but only " + authorization + ", " + proxyAuthorization + ", " + signatureHeader + " and " + signatureInput + " have parts that name a caller"
	case !slices.ContainsFunc(parts, func(p string) bool { return strings.EqualFold(p, part) }):
		return "but what can name a caller in that header is " + strings.Join(parts, ", ")
	}
	return ""
}

// Digest identifies a caller by all the credentials of a request, without keeping them: only
// the digest reaches the store. It is empty without credentials; an empty one doesn't count.
//
// If a credential is signed anew for each try, only the parts that name the signer count.
// unproved reports such a credential unless the set names those parts.
//
// Earlier versions digested all of it. Such a digest matches no later one, but that loses
// nothing: every try had its own.
func (c *Set) Digest(r *http.Request) (digest string, unproved bool) {
	var stack [512]byte
	const version = "semel-credential-2"
	b := append(stack[:0], version...) // everything after this is framed, so that no value can imitate a second credential
	for i := range c.headers {
		cr := &c.headers[i]
		values := r.Header[cr.name]
		if blank(values) {
			continue
		}
		if s, text := signingIn(r.Header, cr.name); s != nil {
			next, named, ok := s.appendSigner(b, cr.name, text, cr.parts)
			if ok && (named || cr.whole) {
				b, unproved = next, unproved || !named
				continue
			}
		}
		if cr.whole {
			b = canon.FrameList(canon.Frame(b, cr.name), values)
		}
	}
	for _, name := range c.cookies {
		var values []string
		for _, cookie := range r.CookiesNamed(name) {
			values = append(values, cookie.Value)
		}
		if !blank(values) {
			b = canon.FrameList(canon.Frame(b, cookiePrefix+name), values)
		}
	}
	if len(b) == len(version) {
		return "", false
	}
	sum := sha256.Sum256(b)
	var text [len(Prefix) + 43]byte
	copy(text[:], Prefix)
	base64.RawURLEncoding.Encode(text[len(Prefix):], sum[:])
	return string(text[:]), unproved
}

// SignedAnew reports whether the request has a credential that is signed anew for each try.
// If the upstream refuses it, the next try may still succeed.
func (c *Set) SignedAnew(r *http.Request) bool {
	return slices.ContainsFunc(c.headers, func(cr header) bool {
		s, text := signingIn(r.Header, cr.name)
		if s == nil {
			return false
		}
		_, found := s.find(text, s.names[0])
		return found
	})
}

func blank(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return v != "" })
}

// String says what to send to callers who sent none. It gives examples of the usual credentials.
func (c *Set) String() string {
	if len(c.names) >= len(Usual) && slices.Equal(c.names[:len(Usual)], Usual) {
		return "one, such as " + strings.Join(append([]string{"Authorization", "X-Api-Key"}, c.names[len(Usual):]...), " or ")
	}
	var names []string
	for _, n := range c.names {
		if cookie, ok := strings.CutPrefix(n, cookiePrefix); ok {
			n = "the cookie " + cookie
		} else if header, part, ok := strings.Cut(n, ":"); ok {
			n = part + " in " + http.CanonicalHeaderKey(header)
		}
		names = append(names, n)
	}
	if len(names) == 1 {
		return names[0]
	}
	return "one of: " + strings.Join(names, ", ")
}
