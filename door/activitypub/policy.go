package activitypub

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Policy says which activities to accept from matching instances (servers).
type Policy struct {
	// Host is the host of an instance, with its port if that isn't the scheme's default, or
	// *.host for its subdomains, or * for all.
	Host string
	// Refuse accepts nothing: the sender gets 403.
	Refuse bool
	// Unsigned also accepts unsigned activities. Anybody who can reach the inbox can then speak
	// for any actor of the instance. It is for prototypes, and for networks that nobody else is
	// on.
	Unsigned bool
}

var policyHost = regexp.MustCompile(`^(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]+)?|\[[0-9a-f:]+\](:[0-9]+)?)$`)

func (p *Policy) valid() bool { return policyHost.MatchString(p.Host) }

func (p *Policy) fits(host string) bool {
	p = &Policy{Host: canonicalHost(p.Host)}
	below, wild := strings.CutPrefix(p.Host, "*.")
	return p.Host == "*" || p.Host == host || wild && strings.HasSuffix(host, "."+below)
}

// Policies apply to instances in order: the first match wins. An instance without a policy
// must sign its activities.
type Policies []Policy

// Accepts reports whether anything is accepted from instances with a host, on any port. It is
// for [httpsig.KeysOptions], so that nothing fetches a key from a refused instance.
func (list Policies) Accepts(host string) bool {
	if strings.Contains(host, ":") {
		host = "[" + host + "]" // URLs write IPv6 hosts like this
	}
	for _, p := range list {
		name := port.ReplaceAllString(p.Host, "")
		if (&Policy{Host: name}).fits(host) && (!p.Refuse || name == p.Host) {
			return !p.Refuse
		}
	}
	return true
}

var port = regexp.MustCompile(`:[0-9]*$`)

// of returns the policy of an instance; for an empty host it returns the policy of instances
// that no other one fits.
func (list Policies) of(host string) Policy {
	for _, p := range list {
		if p.fits(host) {
			return p
		}
	}
	return Policy{Host: host}
}

// hostOf returns the host of a URI, with its port unless the scheme implies that, in one
// spelling.
func hostOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(canonicalHost(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
}

// canonicalHost returns a host in lower case, without a full stop at its end, and with its
// port, if any, as the shortest number.
func canonicalHost(host string) string {
	host = strings.ToLower(host)
	number := port.FindString(host)
	host = strings.TrimRight(strings.TrimSuffix(host, number), ".")
	if number == ":" {
		number = ""
	} else if n, err := strconv.ParseUint(strings.TrimPrefix(number, ":"), 10, 16); err == nil {
		number = ":" + strconv.FormatUint(n, 10)
	}
	return host + number
}
