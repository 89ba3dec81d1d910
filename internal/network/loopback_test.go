package network

import "testing"

// Who isn't certainly this machine is nobody on it.
func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "LOCALHOST": false, "localhost.example": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "127.0.0.1:80": false, "[::1]": false,
	} {
		if got := Loopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
