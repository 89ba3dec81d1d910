package extract

import (
	"strings"
	"testing"
)

func FuzzKey(f *testing.F) {
	for _, s := range []string{"k", `"k"`, `"a\"b\\c"`, `"a`, `"a";v=1`, "a,b", "", `""`, " ", "ü", `"a"b`, `"\`, "\x00", `a"b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, field string) {
		if key, fault := parseKey(field, true); (key == "") != (fault != "") {
			t.Fatalf("opaque key %q, fault %q", key, fault)
		}
		key, fault := parseKey(field, false)
		if (key == "") != (fault != "") {
			t.Fatalf("key %q, fault %q", key, fault)
		}
		if fault != "" {
			return
		}
		for i := range len(key) {
			if !printable(key[i]) {
				t.Fatalf("key %q has a character that is not printable", key)
			}
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, fault := parseKey(quoted, false); again != key {
			t.Fatalf("%q became %q, but quoted %q, %s", field, key, again, fault)
		}
		if strings.HasPrefix(key, `"`) || strings.ContainsAny(key, ` ",;`) {
			return // a key that has no bare form
		}
		if again, fault := parseKey(key, false); again != key {
			t.Fatalf("%q became %q, but bare %q, %s", field, key, again, fault)
		}
	})
}
