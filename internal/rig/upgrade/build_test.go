package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// The programs to upgrade from. Constants move at a release only, and then by adding the
// commit that was released: what users run is what has to be read.
const (
	// first wrote format 1 of records before it had a flag for held ones, and schema 1 on
	// PostgreSQL. It has no sequences and no door for agents.
	first = "fede386"
	// recent has the same schema as the present program, so that nodes of both serve one
	// database at a time. It keeps the newest number of a sequence under the sequence's own
	// identity.
	recent = "4bc15d9"
)

// repository is where the history is.
const repository = "../../.."

// required is set where a test that lacks something fails; see CONTRIBUTING.md.
var required = os.Getenv("SEMEL_REQUIRE_SERVICES") == "1"

var programs struct {
	mu   sync.Mutex
	dir  string
	made map[string]error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir) // what is left is in a temporary directory
	}
	os.Exit(code)
}

// program builds the program of a commit, or of this tree if commit is empty, once.
func program(t *testing.T, commit string) string {
	t.Helper()
	p := &programs
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "semel-upgrade-*")
		if err != nil {
			t.Fatal(err)
		}
		p.dir, p.made = dir, map[string]error{}
	}
	exe := filepath.Join(p.dir, "semel-"+commit)
	if _, known := p.made[commit]; !known {
		p.made[commit] = build(commit, p.dir, exe)
	}
	if err := p.made[commit]; err != nil {
		if !required && commit != "" && !contains(commit) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return exe
}

// contains reports whether the clone has a commit.
func contains(commit string) bool {
	cmd := exec.Command("git", "cat-file", "-e", commit+"^{commit}")
	cmd.Dir = repository
	return cmd.Run() == nil
}

func build(commit, dir, exe string) error {
	tree := repository
	if commit != "" {
		if !contains(commit) {
			return fmt.Errorf("this clone lacks the commit %s, from which an upgrade is tested: fetch the whole history, as by git fetch --unshallow", commit)
		}
		tree = filepath.Join(dir, "tree-"+commit)
		if out, err := command(repository, "git", "archive", "--format=tar", "--output", tree+".tar", commit); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		if err := os.Mkdir(tree, 0o700); err != nil {
			return err
		}
		if out, err := command(tree, "tar", "-xf", tree+".tar"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	if out, err := command(tree, "go", "build", "-buildvcs=false", "-o", exe, "./cmd/semel"); err != nil {
		return fmt.Errorf("build the program of %q: %w\n%s", commit, err, out)
	}
	return nil
}

func command(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}
