package answer

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/origin"
)

// alwaysKept are the answer headers that every route keeps. Their order is the order of their
// codes in stored results: it may grow, but never changes.
var alwaysKept = [...]string{
	"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Location", "Etag", "Last-Modified", "Link",
	origin.Header, origin.AllowOrigin, origin.AllowCredentials, origin.ExposeHeaders,
}

// alsoKept are further headers of this kind. They are stored with their names, so that a
// program that only has the list above skips them.
var alsoKept = [...]string{"Content-Location", "Vary", "Allow", "Content-Range"}

// firstOfOrigin is where the headers for the requesting page begin. The first of them is the
// request's Origin.
const firstOfOrigin = 8

// Kept reports whether a header is always kept, and so has a code.
func Kept(name string) bool { return slices.Contains(alwaysKept[:], name) }

// NeverKept says why a header may not be replayed, or is empty.
func NeverKept(name string) string {
	switch name {
	case "Set-Cookie", "Authorization", "Authentication-Info", "Www-Authenticate":
		return "which is a credential of one caller"
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return "which belongs to one connection"
	case "Content-Length":
		return "which is computed anew"
	case "Date", "Age", "Expires", "Cache-Control", "Strict-Transport-Security", "X-Content-Type-Options", "Retry-After", "Server":
		return "which belongs to one answer"
	case "Request-Id", "X-Request-Id", "X-Correlation-Id", "Traceparent", "Tracestate":
		return "which names one delivery"
	case "Preference-Applied":
		return "which the guard sets"
	}
	for _, prefix := range [...]string{"Access-Control-", "Proxy-", "Ratelimit", "X-Ratelimit-", http.TrailerPrefix} {
		if strings.HasPrefix(name, prefix) {
			return "which belongs to one delivery"
		}
	}
	if name == "" || textproto.TrimString(name) != name || strings.ContainsAny(name, " \t\r\n:") {
		return "which is not the name of a header"
	}
	return ""
}
