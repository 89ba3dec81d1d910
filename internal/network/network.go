// Package network says where a caller calls from, if that is all that is known of them.
package network

import "net/netip"

// Of returns the network of an address: that alone, or for IPv6 the network of one
// subscriber, who has a whole one (a /64).
func Of(addr netip.Addr) netip.Prefix {
	addr, bits := addr.Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // of no address it's the zero value
	return network
}

// OfClient returns that of a client, by the RemoteAddr of its request. It is the zero value
// if there is no address, as on a Unix socket.
func OfClient(remoteAddr string) netip.Prefix {
	at, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return Of(at.Addr())
}
