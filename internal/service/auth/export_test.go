package auth

import "net/http"

// Through makes rt fetch the keys of all issuers, so that tests need no network.
func (a *Authenticator) Through(rt http.RoundTripper) {
	for _, is := range a.issuers {
		is.remote.client.Base = rt
	}
}
