package limit

import (
	"fmt"
	"net/http"
)

// Requests handles no more than so many requests at one time. One more is refused
// with 503 and a Retry-After, whatever it is: HTTP/2 has many requests on one
// connection, so that a bound on connections is none on them.
func Requests(next http.Handler, limit int, opts *Options) (http.Handler, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("limit: %d requests at once", limit)
	}
	o := opts.withDefaults()
	slots := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			o.refuse(w, r, errRequests)
		}
	}), nil
}
