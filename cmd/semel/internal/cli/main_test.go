package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == toolProgram {
		serveTools(os.Args[2])
		return
	}
	// Contexts of whoever runs the tests are not theirs.
	home, err := os.MkdirTemp("", "semel-test-*")
	if err == nil {
		err = os.Setenv("XDG_CONFIG_HOME", home)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := pgtest.Main(m)
	if err := os.RemoveAll(home); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := os.RemoveAll(built.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// built is the program, which is built once: to link it takes seconds.
var built struct {
	sync.Once
	dir, exe string
	err      error
}

// released are the flags that the program is released with. grpcnotrace leaves out what
// makes the linker keep every exported method of every library.
var released = []string{"build", "-tags", "grpcnotrace", "-ldflags", "-s -w"}

// program is the program's file, for the tests that run it as users do.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the program is not built and run with -short")
	}
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "semel-test-*"); built.err != nil {
			return
		}
		built.exe = filepath.Join(built.dir, "semel.exe")
		if out, err := exec.Command("go", append(released, "-o", built.exe, "github.com/semelhq/semel/cmd/semel")...).CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.exe
}
