package stage

import "net/http"

// Direct is a client that keeps no connection. Closing an [net/http/httptest.Server] closes the idle
// connections of [http.DefaultTransport], also one that a request of a test beside it was just given.
var Direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
