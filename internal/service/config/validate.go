package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/spelling"
	"github.com/semelhq/semel/internal/strictyaml"
)

// A validator checks settings against each other; each by itself is checked already.
type validator struct {
	*strictyaml.Report
	c *Config
}

func validate(p *strictyaml.Report, c *Config) {
	v := validator{p, c}
	v.address("listen.address", c.Listen.Address)
	v.address("admin.address", c.Admin.Address)
	v.tls("listen.tls", c.Listen.TLS)
	v.trustedProxies()
	v.tls("admin.tls", c.Admin.TLS)
	v.store()
	v.auth()
	v.exposure()
	v.api()
	v.operations()
	v.routes()
	v.quotas()
	v.archive()
	v.evidence()
	for _, section := range doorSections {
		section.validate(&v)
	}
	v.mounts()
	v.ownNames()
	v.dispatch()
}

func (v *validator) bad(path, hint, format string, args ...any) {
	v.Add(path, fmt.Sprintf(format, args...), hint)
}

func (v *validator) address(path, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		hint := "write host and port, such as 127.0.0.1:8480"
		if _, err := strconv.ParseUint(address, 10, 16); err == nil {
			hint = "write 127.0.0.1:" + address
		}
		v.bad(path, hint, "%q is not a host and port", address)
		return
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		v.bad(path, "0 picks a free one", "the port %q is not a number from 0 to 65535", port)
		return
	}
	noName, _ := formats["host"](host)
	if _, err := netip.ParseAddr(host); err != nil && noName != "" && host != "" {
		v.bad(path, "", "%q is neither an address nor a host name", host)
	}
}

// loopback reports whether only this machine can reach an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && network.Loopback(host)
}

func (v *validator) tls(path string, t TLS) {
	if t.ClientCA != "" && t.Cert == "" && t.Key == "" {
		v.bad(path+".client_ca", "add cert and key", "client certificates need TLS")
	}
}

// exposure refuses an admin listener for strangers, and two listeners on one address.
func (v *validator) exposure() {
	c := v.c
	_, port, _ := net.SplitHostPort(c.Admin.Address)
	if c.Listen.Address == c.Admin.Address && port != "0" {
		v.bad("admin.address", "give each a port of its own", "the admin listener has the address of the data listener, %s", c.Admin.Address)
	}
	if loopback(c.Admin.Address) || v.Faulty["admin.address"] {
		return
	}
	a := c.Auth
	verified := c.Admin.TokenFile != "" || len(a.Tokens) > 0 || len(a.JWT) > 0 || len(a.TrustedHeader.From) > 0 || len(a.MTLS) > 0 && c.Admin.TLS.ClientCA != ""
	if !verified {
		v.bad("admin.address", "set admin.token_file, add callers to auth, or listen on 127.0.0.1", "%s can be reached from other machines, and callers would need no credential", c.Admin.Address)
	}
}

// remoteStores are the schemes of stores that several nodes can share.
var remoteStores = append([]string{"postgres", "postgresql"}, redisStores...)

var redisStores = []string{
	"redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel", "redis+unix",
	"valkey", "valkeys", "valkey-cluster", "valkeys-cluster", "valkey-sentinel", "valkeys-sentinel", "valkey+unix",
}

// Redis reports whether the store is in Redis or Valkey.
func (s Store) Redis() bool {
	scheme, _, _ := strings.Cut(s.URL, ":")
	return slices.Contains(redisStores, scheme)
}

func (v *validator) store() {
	const path, allowed = "store.url", "write pebble:DIR, postgres://…, redis://…, redis-cluster://… or memory:"
	scheme, rest, _ := strings.Cut(v.c.Store.URL, ":")
	switch {
	case v.Faulty["store.url_file"]:
	case scheme == "pebble":
		if rest == "" {
			v.bad(path, "write pebble:./semel-data", "pebble: needs a directory")
		}
	case slices.Contains(remoteStores, scheme):
		if u, err := url.Parse(v.c.Store.URL); err != nil || u.Host == "" && u.RawQuery == "" && !strings.HasSuffix(scheme, "+unix") {
			v.bad(path, "", "the value is not a URL with a host")
		}
	case v.c.Store.URL == "memory:":
		if v.c.Store.Profile == "strict" {
			v.bad("store.profile", "use pebble:DIR, or the profile standard", "the strict profile needs a durable store, which memory: isn't")
		}
	case !strings.Contains(v.c.Store.URL, ":"):
		v.bad(path, allowed, "the value is not the URL of a store")
	default:
		hint := allowed
		if best := spelling.Nearest(scheme, append([]string{"pebble", "memory"}, remoteStores...)); best != "" {
			hint = "did you mean " + best + ":?"
		}
		v.bad(path, hint, "the value names no known kind of store") // the text may have a password, so it isn't shown
	}
}

func (v *validator) archive() {
	if v.c.Archive.Dir == "" {
		v.Add("archive.dir", "dir is empty", "name a directory, such as ./semel-archive")
	}
	if url := v.c.Store.URL; v.c.Archive.In == "store" && !strings.HasPrefix(url, "postgres:") && !strings.HasPrefix(url, "postgresql:") {
		v.bad("archive.in", "write files, or use a postgres:// store", "only PostgreSQL has a table for the archive")
	}
}

// quotas checks that one answer can't use up a quota: its caller could begin nothing else.
func (v *validator) quotas() {
	q := v.c.Quotas
	for path, bytes := range map[string]Size{"quotas.principal_bytes": q.PrincipalBytes, "quotas.tenant_bytes": q.TenantBytes} {
		for i := range v.c.Operations {
			if op := &v.c.Operations[i]; bytes > 0 && bytes < op.MaxResult {
				v.bad(path, "raise it, or lower max_result", "%v is less than the %v that one result of the operation %s may have", bytes, op.MaxResult, op.Name)
				break
			}
		}
	}
}

func (v *validator) auth() {
	v.c.Auth.Check(v.Report, "auth")
	if len(v.c.Auth.MTLS) > 0 && v.c.Listen.TLS.ClientCA == "" && v.c.Admin.TLS.ClientCA == "" {
		v.bad("auth.mtls", "add client_ca to listen.tls or admin.tls", "no listener asks for client certificates")
	}
}

// api refuses an execution API for strangers. Its callers use up keys, fill the store,
// get their calls signed in the evidence log and send messages. So unknown callers may
// use it only from this machine, and only as long as that stays harmless.
func (v *validator) api() {
	c := v.c
	const path, hint = "api", "add callers to auth, or write api: off"
	switch {
	case v.Faulty[path] || v.Faulty["auth"]:
	case c.API == APIVerified && !c.Auth.Configured():
		v.bad(path, "add callers to auth", "auth has no method by which a caller could be verified")
	case c.API != APIOpen || v.Faulty["listen.address"]:
	case c.Auth.Configured():
		v.bad(path, "write verified, or leave it out", "auth has callers, and an open execution API would also accept made-up credentials")
	case !loopback(c.Listen.Address):
		v.bad(path, hint, "%s can be reached from other machines, and the execution API would need no credential", c.Listen.Address)
	case len(c.Dispatch.Destinations) > 0:
		v.bad(path, hint, "anybody on this machine could send messages to the destinations of dispatch, signed with their secrets")
	case c.Evidence.KeyFile != "":
		v.bad(path, hint, "anybody on this machine could write to the evidence log, in anybody's name")
	}
}

// ByAPI reports whether calls of an operation may begin and end over the execution API.
// Operations of routes, of functions over Forrst and of agents may not, unless they say so;
// otherwise a caller could write the answers that the route replays to others.
func (c *Config) ByAPI(operation string) bool {
	if op := c.operation(operation); op != nil && op.API {
		return true
	}
	return !slices.ContainsFunc(c.Routes, func(r Route) bool { return r.Operation == operation && r.Mode != "off" }) &&
		!slices.ContainsFunc(doorSections, func(s doorSection) bool { return s.uses != nil && slices.Contains(s.uses(c), operation) })
}

func (v *validator) evidence() {
	e := &v.c.Evidence
	if e.KeepOpenings != 0 && e.KeepOpenings < Duration(time.Hour) {
		v.bad("evidence.keep_openings", "", "%v is less than 1h", e.KeepOpenings)
	}
	if e.AuditEvery != 0 && e.AuditEvery < Duration(time.Minute) {
		v.bad("evidence.audit_every", "", "%v is less than 1m", e.AuditEvery)
	}
	if v.c.KeepsEvidence() && e.KeyFile == "" {
		v.bad("evidence.key_file", "make one with semel evidence keygen", "an operation keeps evidence, and there are no keys to sign it")
	}
	if v.c.Commands.Registry != "" {
		if !v.c.Commands.WhatsApp.On() && !v.c.Auth.Configured() { // WhatsApp identifies its senders without auth
			v.bad("commands.registry", "configure auth", "commands need known callers, and nothing says how to identify them")
		}
		if e.KeyFile == "" {
			v.bad("evidence.key_file", "make one with semel evidence keygen", "commands keep evidence, and there are no keys to sign it")
		}
	}
	for at, w := range items("evidence.witnesses", e.Witnesses) {
		if u, err := url.Parse(w.URL); w.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			v.bad(at+".url", "", "%q is not an http or https URL", w.URL)
		}
		if _, err := evidence.ParseCosignerKey(w.Key); w.Key != "" && err != nil {
			v.bad(at+".key", "", "this is not the key of a witness: name, hash and base64 with + between them")
		}
	}
}

func (v *validator) rate(path string, r Rate) {
	switch {
	case r.PerSecond < 0 || r.Burst < 0:
	case r.PerSecond == 0 && r.Burst != 0:
		v.bad(path+".per_second", "write such as 5", "burst needs a per_second above zero")
	case r.PerSecond != 0 && r.Burst == 0:
		v.bad(path+".burst", "write such as 10", "per_second needs a burst above zero")
	}
}

func (v *validator) faultyBelow(path string) bool {
	for at, faulty := range v.Faulty {
		if faulty && strings.HasPrefix(at, path) {
			return true
		}
	}
	return false
}

// Trusted are the networks of the proxies in front. It skips invalid ones, which [Load]
// has refused.
func (l *Listener) Trusted() []netip.Prefix {
	var networks []netip.Prefix
	for _, text := range l.TrustedProxies {
		if n, err := parseNetwork(text); err == nil {
			networks = append(networks, n)
		}
	}
	return networks
}

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	n, err := netip.ParsePrefix(text)
	if err == nil && n.Masked() != n {
		err = errors.New("it has bits set after its prefix")
	}
	return n, err
}

func (v *validator) trustedProxies() {
	for at, text := range items("listen.trusted_proxies", v.c.Listen.TrustedProxies) {
		switch n, err := parseNetwork(*text); {
		case err != nil:
			v.bad(at, "write such as 10.0.0.5 or 10.0.0.0/8", "%q is neither an address nor a network in CIDR form", *text)
		case n.Bits() == 0:
			v.bad(at, "name the addresses of the proxies", "%s covers all addresses, so anybody could fake where a request came from", *text)
		}
	}
}
