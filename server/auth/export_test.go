package auth

import "net/http"

// Through has the keys of all issuers fetched by rt, so that tests need no network.
func (a *Authenticator) Through(rt http.RoundTripper) {
	for _, is := range a.issuers {
		is.remote.client.Base = rt
	}
}
