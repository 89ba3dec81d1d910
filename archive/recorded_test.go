package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/codec"
)

// TestRecorded reads the archives that programs of two versions have written of the records of
// which package codec has the bytes.
func TestRecorded(t *testing.T) {
	for commit, want := range map[string]int{"fede386": 18, "4bc15d9": 24} {
		t.Run(commit, func(t *testing.T) {
			dir := filepath.Join("testdata", commit)
			if err := Verify(dir); err != nil {
				t.Fatal(err)
			}
			n := 0
			err := Read(dir, func(rec semel.Record) error {
				n++
				b, err := os.ReadFile(filepath.Join("../store/codec/testdata/records", commit, rec.ID.Key))
				if err != nil {
					return nil // one number of a sequence has another key
				}
				if again, err := codec.Append(nil, &rec); err != nil || string(again) != string(b) {
					t.Errorf("%s is read as another record: %+v, %v", rec.ID.Key, rec, err)
				}
				return nil
			})
			if err != nil || n != want {
				t.Errorf("%d records, %v; want %d", n, err, want)
			}
		})
	}
}

func TestALaterFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{manifestFile, segmentName(1), segmentName(2)} {
		b, err := os.ReadFile(filepath.Join("testdata/4bc15d9", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == manifestFile {
			b = []byte(strings.Replace(string(b), `"version":1`, `"version":3`, 1))
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Read(dir, func(semel.Record) error { return nil }); err == nil || !strings.Contains(err.Error(), "use the program that wrote it, or a later one") {
		t.Error(err)
	}
}
