package httpsig

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// request is the parts of a request that a signature can cover, as its sender sees it.
type request struct {
	method    string
	scheme    string
	authority string // normalised
	host      string // the field, as received
	raw       string // the target, as received
	target    string // the path and the query, as received
	header    http.Header
}

// requestOf reads a request that a server received, or one that a client is about to send.
// base, unless it is nil, replaces the scheme and the host.
//
// The target comes from the request line and never from the parsed URL: there /a%2Fb and /a/b
// have the same path, and a signature of one would be valid for the other.
func requestOf(r *http.Request, base *url.URL) (*request, error) {
	q := &request{method: r.Method, scheme: "http", host: r.Host, raw: r.RequestURI, header: r.Header}
	if q.raw == "" { // a client's
		q.raw = r.URL.RequestURI()
	}
	switch {
	case base != nil:
		q.scheme, q.host = base.Scheme, base.Host
	case r.RequestURI == "" && r.URL.Scheme != "":
		q.scheme = strings.ToLower(r.URL.Scheme)
	case r.TLS != nil:
		q.scheme = "https"
	}
	if q.host == "" {
		q.host = r.URL.Host
	}
	q.target = q.raw
	if !strings.HasPrefix(q.raw, "/") {
		_, rest, ok := strings.Cut(q.raw, "://")
		if !ok {
			return nil, errors.New("the target is neither a path nor a URL")
		}
		if at := strings.IndexAny(rest, "/?#"); at < 0 {
			q.target = "/"
		} else if q.target = rest[at:]; q.target[0] != '/' {
			q.target = "/" + q.target
		}
	}
	if q.method == "" {
		q.method = http.MethodGet // net/http takes an empty method as GET
	}
	q.authority = authority(q.scheme, q.host)
	return q, nil
}

// authority returns a host with its port, unless that is the scheme's default.
func authority(scheme, host string) string {
	return strings.TrimSuffix(strings.ToLower(host), map[string]string{"http": ":80", "https": ":443"}[scheme])
}

// path and query return the parts of the target; the query begins with its question mark, even
// if there is none, as RFC 9421 2.2.7 says.
func (q *request) path() string {
	path, _, _ := strings.Cut(q.target, "?")
	return path
}

func (q *request) query() string {
	_, query, _ := strings.Cut(q.target, "?")
	return "?" + query
}

// field returns the value of a header field by its lower-case name: the values of all its
// lines, without surrounding white space, joined by commas.
func (q *request) field(name string) (string, bool) {
	if name == "host" { // net/http keeps it elsewhere, and it has one line
		return q.host, q.host != ""
	}
	values := q.header[http.CanonicalHeaderKey(name)]
	if len(values) == 0 {
		return "", false
	}
	trimmed := make([]string, len(values))
	for i, v := range values {
		trimmed[i] = strings.TrimSpace(v)
	}
	return strings.Join(trimmed, ", "), true
}
