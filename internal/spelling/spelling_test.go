package spelling

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"json", "limit", "operation", "Window", "store_url"}
	for word, want := range map[string]string{
		"jsno": "json", "limits": "limit", "oprtaion": "operation", "window": "Window", "store": "store_url", "WINDOWS": "",
		"xyzzy": "", "": "", "js": "", "größe": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("for %q it is %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"größe", "grosse", 3}, {"abc", "ca", 3}} {
		if got, back := Distance(test.a, test.b), Distance(test.b, test.a); got != test.want || back != got {
			t.Errorf("from %q to %q it is %d and back %d, want %d", test.a, test.b, got, back, test.want)
		}
	}
}
