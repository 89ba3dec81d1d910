package network

import "testing"

func TestOfClient(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:80":            "192.0.2.7/32",
		"[::ffff:192.0.2.7]:80":   "192.0.2.7/32",
		"[2001:db8:1:2:3::4]:80":  "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":       "fe80::/64",
		"@":                       "invalid Prefix",
		"":                        "invalid Prefix",
		"192.0.2.7":               "invalid Prefix",
		"[2001:db8:1:2:ffff::]:1": "2001:db8:1:2::/64",
	} {
		if got := OfClient(addr).String(); got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}
