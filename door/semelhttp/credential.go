package semelhttp

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/canon"
)

// usualCredentials are the headers by which callers authenticate themselves, if a route
// names no others. Those of a profile come on top.
var usualCredentials = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "Plaid-Client-Id", "Plaid-Secret",
}

// cookiePrefix begins the name of a credential that is a single cookie.
const cookiePrefix = "cookie:"

// credentials are the credentials by which a route tells callers apart.
type credentials struct {
	headers []credential // sorted by name
	cookies []string     // sorted
	names   []string     // as they were declared, for people
}

// credential is a header that a route names, whole or in parts.
type credential struct {
	header string // in canonical form
	whole  bool
	parts  []string // what names the signer in it, see [signing]
}

func newCredentials(names []string) credentials {
	c := credentials{names: names}
	for _, name := range names {
		if cookie, ok := strings.CutPrefix(name, cookiePrefix); ok {
			c.cookies = append(c.cookies, cookie)
			continue
		}
		header, part, partial := strings.Cut(name, ":")
		header = http.CanonicalHeaderKey(header)
		at, found := slices.BinarySearchFunc(c.headers, header, func(have credential, name string) int { return strings.Compare(have.header, name) })
		if !found {
			c.headers = slices.Insert(c.headers, at, credential{header: header})
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

// faultOfCredential is why a route can't name this credential; empty if it can.
func faultOfCredential(name string) string {
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

// digest names a caller by all the credentials that they sent, without keeping them: only
// the digest reaches the store. It is empty if there are none. An empty credential counts
// as not sent.
//
// Of a credential that is signed anew for each try only what names the signer counts.
// unproved says that there was one, of which the route doesn't name that part.
//
// A digest that was made of the whole of such a credential, by a version before, equals no
// later one. Each try had another then, so nothing is lost.
func (c *credentials) digest(r *http.Request) (digest string, unproved bool) {
	var stack [512]byte
	const version = "semel-credential-2"
	b := append(stack[:0], version...) // what follows is framed, so that no value can imitate a second credential
	for i := range c.headers {
		cr := &c.headers[i]
		values := r.Header[cr.header]
		if blank(values) {
			continue
		}
		if s, text := signingIn(r.Header, cr.header); s != nil {
			next, named, ok := s.appendSigner(b, cr.header, text, cr.parts)
			if ok && (named || cr.whole) {
				b, unproved = next, unproved || !named
				continue
			}
		}
		if cr.whole {
			b = appendValues(canon.Frame(b, cr.header), values)
		}
	}
	for _, name := range c.cookies {
		var values []string
		for _, cookie := range r.CookiesNamed(name) {
			values = append(values, cookie.Value)
		}
		if !blank(values) {
			b = appendValues(canon.Frame(b, cookiePrefix+name), values)
		}
	}
	if len(b) == len(version) {
		return "", false
	}
	sum := sha256.Sum256(b)
	var text [len(digestPrefix) + 43]byte
	copy(text[:], digestPrefix)
	base64.RawURLEncoding.Encode(text[len(digestPrefix):], sum[:])
	return string(text[:]), unproved
}

// signedAnew reports whether the request has a credential that is signed anew for each try.
func (c *credentials) signedAnew(r *http.Request) bool {
	return slices.ContainsFunc(c.headers, func(cr credential) bool {
		s, text := signingIn(r.Header, cr.header)
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

// String lists the credentials, for callers who sent none. Of the usual ones it gives
// examples.
func (c *credentials) String() string {
	if len(c.names) >= len(usualCredentials) && slices.Equal(c.names[:len(usualCredentials)], usualCredentials) {
		return "one, such as " + strings.Join(append([]string{"Authorization", "X-Api-Key"}, c.names[len(usualCredentials):]...), " or ")
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

const digestPrefix = "credential:"

// What makes a key hard to guess: its length, and how many of its characters differ.
const (
	unguessableLen      = 20
	unguessableDistinct = 10
)

// guessable reports whether another caller may come to use the same key, by chance or on
// purpose. A UUID, a ULID or a long and varied key can't be guessed, unless it is nothing
// but a counter. If a key is wrongly taken for one of these, such as one made from an
// order's number and a date, a second caller gets a refusal while the call of the first
// may have happened; the opposite mistake would cost a second effect.
func guessable(key string) bool {
	switch {
	case isCounter(key):
		return true
	case isUUID(key), isULID(key):
		return false
	case strings.Trim(key, "0123456789") == "":
		return true // a number
	}
	seen := map[rune]struct{}{}
	for _, c := range key {
		if seen[c] = struct{}{}; len(seen) == unguessableDistinct {
			return utf8.RuneCountInString(key) < unguessableLen
		}
	}
	return true
}

// isCounter reports whether a key is a number with so many zeros that it is counted up,
// whatever its form. Of random UUIDs fewer than one in a billion has as many.
func isCounter(key string) bool {
	zeros := strings.Count(key, "0")
	return zeros > 0 && 2*zeros >= len(key)-strings.Count(key, "-")
}

// isUUID reports whether the text has the form of a UUID, with hyphens or without.
func isUUID(s string) bool {
	switch len(s) {
	case 36:
		if s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
			return false
		}
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	case 32:
	default:
		return false
	}
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// isULID reports whether the text has the form of a ULID: 26 characters of Crockford's
// base32, which has no I, L, O and U, and at most 128 bits.
func isULID(s string) bool {
	return len(s) == 26 && s[0] >= '0' && s[0] <= '7' && strings.Trim(strings.ToUpper(s), "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}
