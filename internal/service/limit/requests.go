package limit

import "net/http"

// Requests handles at most limit requests at one time. It refuses any more with 503 and a
// Retry-After. A bound on connections isn't enough, because HTTP/2 has many requests on
// one connection.
func Requests(next http.Handler, limit int, opts *Options) http.Handler {
	o := opts.withDefaults()
	slots := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			o.refuse(w, r, errRequests, false)
		}
	})
}
