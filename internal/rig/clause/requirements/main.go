// Command requirements turns the records of a test run into pages: docs/requirements.md has
// one line per clause of the specifications, with the tests that prove it, docs/documents a page
// for each specification that also says how to see a clause and where Semel differs, and
// docs/guarantees.md what Semel promises, where, and which tests prove it. It fails if the
// source calls clause.Proves where no passing test of the run did, or if a promise has no test,
// so that a claim can't outlive its proof.
//
// Usage, in the module root, after go test ./... with SEMEL_CLAUSE_DIR set:
//
//	go run ./internal/rig/clause/requirements [-records dir] [-check]
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/semelhq/semel/internal/rig/clause"
)

const (
	requirementsPage = "docs/requirements.md"
	guaranteesPage   = "docs/guarantees.md"
)

func main() {
	records := flag.String("records", os.Getenv(clause.DirEnv), "`directory` with the records of the run; the default is $"+clause.DirEnv)
	check := flag.Bool("check", false, "write nothing; fail if a page is not what would be written")
	flag.Parse()
	if err := run(".", *records, *check, clause.Made, clause.Faults()); err != nil {
		fmt.Fprintln(os.Stderr, "requirements:", err)
		os.Exit(1)
	}
}

// run works on the module in root with the records in dir, and writes or checks the pages.
func run(root, dir string, check bool, promises clause.Promises, broken []clause.Fault) error {
	if dir == "" {
		return errors.New("no directory with records: set -records or " + clause.DirEnv)
	}
	module, err := modulePath(root)
	if err != nil {
		return err
	}
	claims, err := findClaims(root, module)
	if err != nil {
		return err
	}
	records, err := clause.ReadRecords(dir)
	if err != nil {
		return err
	}
	if err := match(claims, records); err != nil {
		return err
	}
	if err := unproved(module, promises, records); err != nil {
		return err
	}
	if err := unclaimed(module, broken, records); err != nil {
		return err
	}
	p, err := findingsOf(module, records, broken)
	if err != nil {
		return err
	}
	pages, err := renderDocuments(p)
	if err != nil {
		return err
	}
	pages[requirementsPage] = render(p)
	pages[guaranteesPage] = renderGuarantees(module, promises, records)
	return putAll(root, pages, check)
}

// put writes a page, or checks the one that is there.
func put(root, page, text string, check bool) error {
	file := filepath.Join(root, filepath.FromSlash(page))
	if !check {
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return compare(page, string(committed), text)
}

// modulePath reads the module's path from the go.mod file in root.
func modulePath(root string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	if path := modfile.ModulePath(data); path != "" {
		return path, nil
	}
	return "", errors.New("go.mod has no module line")
}

// compare returns an error that shows the first line in which the committed
// page differs from the page that the run gives.
func compare(page, committed, want string) error {
	if committed == want {
		return nil
	}
	a, b := strings.Split(committed, "\n"), strings.Split(want, "\n")
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	line := func(lines []string) string {
		if n >= len(lines) {
			return "(end of file)"
		}
		return cmp.Or(lines[n], "(empty line)")
	}
	return fmt.Errorf("%s is out of date, run make generate; first difference, line %d:\n  committed: %s\n  this run:  %s",
		page, n+1, line(a), line(b))
}
