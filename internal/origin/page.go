package origin

import (
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/semelhq/semel/internal/network"
)

// Page reports whether a request comes from no page in a browser, from a page of one of the origins,
// or from one of the host that it is sent to. DNS rebinding gets nothing: a page may not use a
// server on this machine under a name that isn't this machine's.
func Page(r *http.Request, origins []string) bool {
	from := r.Header[Header]
	if len(from) == 0 || len(from) == 1 && slices.Contains(origins, from[0]) {
		return true
	}
	u, err := url.Parse(from[0])
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return len(from) == 1 && err == nil && u.Host == r.Host && (!network.OnLoopback(r.Context()) || network.Loopback(host))
}
