//go:build !linux

package notify

// monotonicMicroseconds is unknown where there is no systemd.
func monotonicMicroseconds() (int64, bool) { return 0, false }
