package activitypub

import (
	"net/url"
	"regexp"
	"strings"
)

// Policy is what is taken from the instances (servers) that it fits.
type Policy struct {
	// Host is the host of an instance, with its port if that isn't the scheme's own, or
	// *.host for the ones below it, or * for all.
	Host string
	// Refuse takes nothing: the sender gets 403.
	Refuse bool
	// Unsigned also takes what isn't signed. Whoever can reach the inbox can then speak
	// for any actor of the instance. It is for prototypes, and networks that nobody
	// else is on.
	Unsigned bool
}

var policyHost = regexp.MustCompile(`^(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]+)?|\[[0-9a-f:]+\](:[0-9]+)?)$`)

func (p *Policy) valid() bool { return policyHost.MatchString(p.Host) }

func (p *Policy) fits(host string) bool {
	below, wild := strings.CutPrefix(p.Host, "*.")
	return p.Host == "*" || p.Host == host || wild && strings.HasSuffix(host, "."+below)
}

// Policies are what is taken from whom; the first that fits counts. From an instance that
// none fits, what is signed is taken.
type Policies []Policy

// Takes reports whether anything is taken from the instances with a host, on whichever
// port. It is for [httpsig.KeysOptions], so that no key is fetched where nothing is taken
// from.
func (list Policies) Takes(host string) bool {
	if strings.Contains(host, ":") {
		host = "[" + host + "]" // as hosts of URLs have IPv6
	}
	for _, p := range list {
		name := port.ReplaceAllString(p.Host, "")
		if (&Policy{Host: name}).fits(host) && (!p.Refuse || name == p.Host) {
			return !p.Refuse
		}
	}
	return true
}

var port = regexp.MustCompile(`:[0-9]+$`)

// of is the policy of an instance; that of an empty host is the one of all instances that
// no other fits.
func (list Policies) of(host string) Policy {
	for _, p := range list {
		if p.fits(host) {
			return p
		}
	}
	return Policy{Host: host}
}

// hostOf is the host of a URI, with the port that its scheme doesn't imply.
func hostOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	host := strings.ToLower(u.Host)
	if port := u.Port(); u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return host
}
