package archtest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recordedList has the digest of each recorded file, as sha256sum writes it. Lines are only
// ever added: -add does so for files that are new.
const recordedList = "internal/archtest/recorded.sha256"

// recordedDirs have what programs have stored, and what they have done to databases.
var recordedDirs = []string{
	"archive/testdata",
	"evidence/testdata",
	"internal/rig/upgrade/testdata",
	"internal/streams/testdata",
	"store/codec/testdata",
	"store/pgstore/migrations",
	"store/pgstore/testdata",
}

var add = flag.Bool("add", false, "add recorded files that are new to "+recordedList)

// TestRecordedFilesStayAsTheyAre: what a program has stored can be read for good, so the files
// that prove it are added, never changed and never removed. A format that changes gets a new
// number, and files of its own.
func TestRecordedFilesStayAsTheyAre(t *testing.T) {
	listed, faults := readDigests(t)
	found := recordedFiles(t)
	for name, digest := range listed {
		switch is, there := found[name]; {
		case !there:
			faults = append(faults, name+" is gone: programs that wrote it are still read")
		case is != digest:
			faults = append(faults, name+" was changed: put it back, give the format a new number, and record that in a new file")
		}
	}
	var fresh strings.Builder
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if listed[name] == "" {
			fmt.Fprintf(&fresh, "%s  %s\n", found[name], name)
		}
	}
	switch {
	case fresh.Len() == 0:
	case *add:
		f, err := os.OpenFile(filepath.Join(root, recordedList), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(fresh.String()); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	default:
		faults = append(faults, recordedList+" lacks the files below: add them by go test ./internal/archtest -run Recorded -add\n"+fresh.String())
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

func readDigests(t *testing.T) (listed map[string]string, faults []string) {
	t.Helper()
	listed = map[string]string{}
	f, err := os.Open(filepath.Join(root, recordedList))
	if os.IsNotExist(err) && *add {
		return listed, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		digest, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok || listed[name] != "" {
			faults = append(faults, fmt.Sprintf("%s: the line %q is not one digest of one file", recordedList, lines.Text()))
		}
		listed[name] = digest
	}
	return listed, faults
}

func recordedFiles(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range recordedDirs {
		err := fs.WalkDir(os.DirFS(root), dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if d.Name() == "rapid" || d.Name() == "fuzz" { // what a test that failed has left
					return fs.SkipDir
				}
				return nil
			}
			b, err := os.ReadFile(filepath.Join(root, name))
			sum := sha256.Sum256(b)
			found[name] = hex.EncodeToString(sum[:])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
