package safehttp

import (
	"net"
	"net/netip"
	"testing"
)

// FuzzGuard: no spelling of an address that isn't public gets past the guard, by what
// package net makes of it.
func FuzzGuard(f *testing.F) {
	for _, seed := range []string{
		"93.184.216.34:443", "127.0.0.1:80", "[::ffff:10.0.0.1]:443", "[::ffff:a00:1]:443", "[64:ff9b::7f00:1]:443", "[2002:7f00:1::]:443", "[::1%lo]:1", "[fe80::1%eth0]:80",
		"[::7f00:1]:1", "0.0.0.0:1", "[::]:1", "[fd00::1]:1", "169.254.169.254:80", "[2606:4700::1111]:443", "[64:ff9b:1::a00:1]:443", "224.0.0.1:1", "[ff02::1]:1", "0177.0.0.1:1", "127.1:1",
		"255.255.255.255:1", "[2001::7f00:1]:1", "100.64.0.1:1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if new(Guard).Control(t.Context(), "tcp", address, nil) != nil {
			return
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			t.Fatalf("%q passes and isn't an address", address)
		}
		ip := net.IP(at.Addr().AsSlice())
		for _, within := range embedded(ip) {
			if within.IsPrivate() || within.IsLoopback() || within.IsUnspecified() || within.IsMulticast() || within.IsLinkLocalUnicast() || within.Equal(net.IPv4bcast) || within.To4() != nil && within.To4()[0] == 0 {
				t.Fatalf("%q passes, which is %s", address, within)
			}
		}
	})
}

// embedded are the addresses to which packets to one may go: itself, and an IPv4 address in
// it as RFC 4291, RFC 6052 and RFC 3056 put it there.
func embedded(ip net.IP) []net.IP {
	if ip.To4() != nil {
		return []net.IP{ip}
	}
	all := []net.IP{ip}
	prefix := func(bytes ...byte) bool {
		for i, b := range bytes {
			if ip[i] != b {
				return false
			}
		}
		return true
	}
	switch {
	case prefix(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), prefix(0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0):
		all = append(all, net.IP(ip[12:]))
	case prefix(0x20, 0x02):
		all = append(all, net.IP(ip[2:6]))
	}
	return all
}
