package strictyaml

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQuantities(t *testing.T) {
	t.Run("a duration reads back what it writes", rapid.MakeCheck(func(t *rapid.T) {
		d := Duration(rapid.OneOf(rapid.Int64(), rapid.Map(rapid.Int64Range(0, 1<<24), func(s int64) int64 { return s * int64(time.Second) })).Draw(t, "duration"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d is written %s and read %d, %v", d, d, got, err)
		}
	}))
	t.Run("a size reads back what it writes", rapid.MakeCheck(func(t *rapid.T) {
		s := Size(rapid.OneOf(rapid.Int64(), rapid.Map(rapid.Int64Range(0, 1<<20), func(n int64) int64 { return n << 10 })).Draw(t, "size"))
		if got, err := ParseSize(s.String()); err != nil || got != s {
			t.Fatalf("%d is written %s and read %d, %v", s, s, got, err)
		}
	}))
	t.Run("durations are written as people write them", func(t *testing.T) {
		for _, text := range []string{"0s", "500ms", "30s", "5m", "90m", "1h", "24h", "7d", "1d12h", "1m30s", "1µs"} {
			want := map[string]string{"90m": "1h30m", "24h": "1d"}[text]
			if want == "" {
				want = text
			}
			if d, err := ParseDuration(text); err != nil || d.String() != want {
				t.Errorf("%s is written %s, %v", text, d, err)
			}
		}
	})
	t.Run("sizes are written as people write them", func(t *testing.T) {
		for _, text := range []string{"0", "1", "512", "256KiB", "1MB", "1GiB", "1500kB", "3TiB", "1000KiB"} {
			want := map[string]string{"1000KiB": "1000KiB", "1500kB": "1500kB"}[text]
			if want == "" {
				want = text
			}
			if s, err := ParseSize(text); err != nil || s.String() != want {
				t.Errorf("%s is written %s, %v", text, s, err)
			}
		}
	})
	t.Run("bytes are rounded for people", func(t *testing.T) {
		for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 65787129856: "61 GiB", 270553174016: "252 GiB", 1 << 60: "1024 PiB"} {
			if got := Rounded(n); got != want {
				t.Errorf("%d bytes are %q, want %q", n, got, want)
			}
		}
	})
	t.Run("what is neither is refused", func(t *testing.T) {
		for _, text := range []string{"", "d", "1", "1dd", "-1d", "1d-1h", "1.5d", "1y", "999999999999d", "200000d", "106751d30h", "9e9h", "1 d", "+1d"} {
			if d, err := ParseDuration(text); err == nil {
				t.Errorf("the duration %q is read as %v", text, d)
			}
		}
		for _, text := range []string{"", "KiB", "1kb", "1.5MB", "+1", "1 KB", "9223372036854775808", "9007199254740992KiB", "0x10", "1_000"} {
			if s, err := ParseSize(text); err == nil {
				t.Errorf("the size %q is read as %v", text, s)
			}
		}
	})
}
