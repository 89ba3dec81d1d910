package safehttp_test

import (
	"net/netip"
	"testing"

	"github.com/semelhq/semel/safehttp"
)

func TestGuard(t *testing.T) {
	t.Run("only public addresses are allowed", func(t *testing.T) {
		var g safehttp.Guard
		for address, want := range map[string]bool{
			"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
			"100.64.0.1": false, "0.0.0.0": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false, "192.88.99.1": false, "3fff::1": false,
			"::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "ff02::1": false,
			"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::7f00:1": false, "64:ff9b::a00:1": false, "2002:a00:1::1": false, "2001:db8::1": false,
			"1.1.1.1": true, "2606:4700:4700::1111": true, "::ffff:1.1.1.1": true, "64:ff9b::101:101": true,
		} {
			if got := g.Allows(netip.MustParseAddr(address)); got != want {
				t.Errorf("%s: %v", address, got)
			}
		}
	})
	t.Run("some or all others may be allowed", func(t *testing.T) {
		some := safehttp.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		if !some.Allows(netip.MustParseAddr("10.1.2.3")) || some.Allows(netip.MustParseAddr("127.0.0.1")) {
			t.Error("Allow doesn't say which")
		}
		if all := (&safehttp.Guard{Private: true}); !all.Allows(netip.MustParseAddr("127.0.0.1")) {
			t.Error("Private doesn't allow all")
		}
	})
}
