package clause

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// Proves states that the running test proves the clauses with these ids. An unknown id,
// or none at all, fails the test at once.
//
// When SEMEL_CLAUSE_DIR names a directory, and the test with all its subtests has passed
// and wasn't skipped, Proves adds one record per clause to this process's file in that
// directory; see [ReadRecords]. Without that variable Proves only checks the ids.
//
// Make it the first line of the test: cleanups run in reverse, so only then do failures
// in the test's other cleanups count. The ids must be string literals, because the
// requirements program also finds them by reading the source. Parallel tests may call
// Proves.
func Proves(t testing.TB, ids ...string) {
	t.Helper()
	if len(ids) == 0 {
		t.Fatalf("clause.Proves: no clause named")
	}
	for _, id := range ids {
		if _, ok := Lookup(id); !ok {
			t.Fatalf("clause.Proves: unknown clause %q", id)
		}
	}
	dir := os.Getenv(DirEnv)
	if dir == "" {
		return
	}
	// The caller is the call site, because no helper may call Proves.
	_, file, line, _ := runtime.Caller(1)
	site := Site{File: relative(file), Line: line}
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		for _, id := range ids {
			r := Record{Clause: id, Package: testPackage(), Test: t.Name(), Site: site}
			if err := appendRecord(dir, r); err != nil {
				t.Errorf("clause.Proves: %v", err)
				return
			}
		}
	})
}

// relative makes a source path as reported by the runtime relative to the module root. It finds
// the root from this file's own path, which works for binaries built with -trimpath too.
func relative(file string) string {
	_, self, _, _ := runtime.Caller(0)
	root := strings.TrimSuffix(self, "internal/rig/clause/record.go")
	return strings.TrimPrefix(file, root)
}

// testPackage is the import path of the package under test: the toolchain
// names a test binary's main package after it, with ".test" added.
func testPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return strings.TrimSuffix(info.Path, ".test")
}

// DirEnv is the environment variable that names the directory for records. The path must
// be absolute, because every test binary runs in its own directory.
const DirEnv = "SEMEL_CLAUSE_DIR"

// A Record says that one test that claims one clause has passed.
type Record struct {
	Clause  string `json:"clause"`  // id of the clause
	Package string `json:"package"` // import path of the package whose tests ran
	Test    string `json:"test"`    // full name of the test, with its parents
	Site    Site   `json:"site"`    // where Proves was called
}

// A Site is a place in the module's source.
type Site struct {
	File string `json:"file"` // slash-separated, relative to the module root
	Line int    `json:"line"` // counted from 1
}

// String returns "file:line".
func (s Site) String() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// recordFiles holds the file of this process for each directory. Processes share a
// directory but never a file, so they can't tear each other's records.
var recordFiles = struct {
	sync.Mutex
	open map[string]*os.File
}{open: make(map[string]*os.File)}

// appendRecord adds a record to this process's file in dir, which it creates when first
// needed. The file stays open until the process ends. Nothing is synced, because after a
// crash you repeat the run.
func appendRecord(dir string, r Record) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%s is %q, want an absolute path", DirEnv, dir)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	recordFiles.Lock()
	defer recordFiles.Unlock()
	f := recordFiles.open[dir]
	if f == nil {
		if f, err = os.CreateTemp(dir, "clauses-*.jsonl"); err != nil {
			return err
		}
		recordFiles.open[dir] = f
	}
	_, err = f.Write(append(line, '\n'))
	return err
}

// ReadRecords returns all records that the processes of a run left in dir. It ignores
// files that this package hasn't made; a broken record in one of its own is an error.
func ReadRecords(dir string) ([]Record, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "clauses-") {
			continue
		}
		file := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			var r Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return nil, fmt.Errorf("%s: record %q: %w", file, line, err)
			}
			records = append(records, r)
		}
	}
	return records, nil
}
