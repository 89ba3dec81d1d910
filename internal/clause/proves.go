package clause

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"
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

// relative makes a source path as reported by the runtime relative to the
// module root. The root is found from this file's own path, which works for
// binaries built with -trimpath too.
func relative(file string) string {
	_, self, _, _ := runtime.Caller(0)
	root := strings.TrimSuffix(self, "internal/clause/proves.go")
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
