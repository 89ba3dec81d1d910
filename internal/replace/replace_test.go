package replace

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "signed")
	for _, text := range []string{"a longer text", "short"} {
		if err := File(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		info, serr := os.Stat(name)
		if err != nil || serr != nil || string(got) != text || info.Mode().Perm() != 0o640 {
			t.Errorf("%q, %v, %v", got, info.Mode(), err)
		}
	}
	// A name that can't be given leaves nothing behind.
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := File(filepath.Join(dir, "taken"), []byte("x"), 0o640); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
