// Package network says where a caller calls from, if nothing else is known about them.
package network

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Of returns the network of an address: the address alone, or for IPv6 the network of one
// subscriber, who has a whole /64.
func Of(addr netip.Addr) netip.Prefix {
	addr, bits := addr.Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // zero for an invalid address
	return network
}

// OfClient returns the network of a client, by its request's RemoteAddr. It is the zero value
// if there is no address, as on a Unix socket.
func OfClient(remoteAddr string) netip.Prefix {
	at, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return Of(at.Addr())
}

// OnLoopback reports whether the request came from this machine, either from the program that
// made it or from a proxy that passed it on.
func OnLoopback(ctx context.Context) bool {
	switch addr := ctx.Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// Loopback reports whether a host can only be this machine: one of its loopback addresses, or
// localhost in lower case.
func Loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Forwarded reports whether a proxy says that it has passed the request on for somebody else,
// who may be on another machine.
func Forwarded(header http.Header) bool {
	for name := range header {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", strings.HasPrefix(name, "X-Forwarded-"):
			return true
		}
	}
	return false
}

// OwnPage reports whether a request comes from no page in a browser, from a page of one of the
// origins, or from one of the host that it is sent to. DNS rebinding gets nothing: a page may not
// use a server on this machine under a name that isn't this machine's.
func OwnPage(r *http.Request, origins []string) bool {
	from := r.Header["Origin"]
	if len(from) == 0 || len(from) == 1 && slices.Contains(origins, from[0]) {
		return true
	}
	u, err := url.Parse(from[0])
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return len(from) == 1 && err == nil && u.Host == r.Host && (!OnLoopback(r.Context()) || Loopback(host))
}
