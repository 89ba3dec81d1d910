package semelhttp

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// ScopePath and ScopeHost in Route.ScopeHeaders stand for the path of a request, as it
// was sent and without its query, and for the host that it was sent to.
const (
	ScopePath = ":path"
	ScopeHost = "Host"
)

// maxScopeText is how long a readable scope may be, in bytes; a longer one is kept as its
// digest.
const maxScopeText = 96

// scope is what a request says about whose call it is, apart from its key; empty if it
// says nothing. It joins names and values as a query does, and escapes whatever could be
// taken for a part of that, so no value can imitate another header. An absent header
// differs from an empty one.
func (h *handler) scope(r *http.Request) string {
	if len(h.route.ScopeHeaders) == 0 {
		return ""
	}
	var b strings.Builder
	for _, name := range h.route.ScopeHeaders {
		values := r.Header[name]
		switch name {
		case ScopePath:
			values = []string{targetPath(r)}
		case ScopeHost:
			values = []string{plainHost(r.Host)}
		}
		for _, v := range values {
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(strings.TrimPrefix(name, ":"))
			b.WriteByte('=')
			escapeScope(&b, v)
		}
	}
	if b.Len() <= maxScopeText {
		return b.String()
	}
	sum := sha256.Sum256([]byte(b.String()))
	return "sha256:" + base64.RawURLEncoding.EncodeToString(sum[:]) // no scope looks like this: every other one has an equals sign
}

// escapeScope writes plain characters as they are, and every other byte as a percent sign
// and two digits.
func escapeScope(b *strings.Builder, s string) {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~/:@", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
}
