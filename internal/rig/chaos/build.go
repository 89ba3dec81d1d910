//go:build linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// clockEnv names the file with the offsets of a program's clocks: of the wall clock,
// then of the monotonic one, as nanoseconds in 64 bits.
const clockEnv = "SEMEL_CHAOS_CLOCK"

// The clocks of a Go program can't be moved from outside, because it reads them without
// the C library. So the nodes of a run are built with a copy of three files of the
// standard library that adds an offset. The product itself has no hook for it.
const (
	runtimeClock = `package runtime

import _ "unsafe"

var chaosWall, chaosMonotonic *int64

//go:linkname chaosSetClock time.chaosSetClock
func chaosSetClock(wall, monotonic *int64) { chaosWall, chaosMonotonic = wall, monotonic }

func chaosNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, _ = time_now()
	if p := chaosWall; p != nil {
		ns := sec*1e9 + int64(nsec) + *p
		sec, nsec = ns/1e9, int32(ns%1e9)
	}
	return sec, nsec, nanotime()
}
`
	timeClock = `package time

import (
	"syscall"
	"unsafe"
)

func chaosSetClock(wall, monotonic *int64)

func init() {
	name, ok := syscall.Getenv("` + clockEnv + `")
	if !ok {
		return
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	b, err := syscall.Mmap(fd, 0, 16, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	_ = syscall.Close(fd)
	wall, monotonic := (*int64)(unsafe.Pointer(&b[0])), (*int64)(unsafe.Pointer(&b[8]))
	syscall.ChaosAdjust = func(clock uintptr, ts *syscall.Timespec) {
		switch clock {
		case 0:
			*ts = syscall.NsecToTimespec(ts.Nano() + *wall)
		case 1:
			*ts = syscall.NsecToTimespec(ts.Nano() + *monotonic)
		}
	}
	chaosSetClock(wall, monotonic)
}
`
)

// patch is a replacement in a file of the standard library. The old text occurs once.
type patch struct{ file, old, new string }

var patches = []patch{
	{"runtime/time_nofake.go", "\treturn nanotime1()\n", "\tif p := chaosMonotonic; p != nil {\n\t\treturn nanotime1() + *p\n\t}\n\treturn nanotime1()\n"},
	{"runtime/time.go", "\treturn time_now()\n", "\treturn chaosNow()\n"},
	// Programs also read clocks by system calls.
	{"syscall/syscall_linux.go", "\truntime_exitsyscall()\n\treturn\n}\n\n//go:uintptrkeepalive\n//go:nosplit\n//go:linkname Syscall6\n",
		"\truntime_exitsyscall()\n\tif trap == SYS_CLOCK_GETTIME && err == 0 && ChaosAdjust != nil {\n" +
			"\t\tChaosAdjust(a1, (*Timespec)(unsafe.Pointer(a2)))\n\t}\n\treturn\n}\n\n" +
			"var ChaosAdjust func(clock uintptr, ts *Timespec)\n\n//go:uintptrkeepalive\n//go:nosplit\n//go:linkname Syscall6\n"},
}

// Build builds the program for the nodes in a directory: with clocks that can be moved,
// or unchanged; that of a commit, or of this tree if commit is empty.
func Build(dir, commit string, clocks bool) (binary string, err error) {
	tree := ""
	if commit != "" {
		tree = filepath.Join(dir, "tree")
		if err := checkout(tree, commit); err != nil {
			return "", err
		}
	}
	binary = filepath.Join(dir, "semel")
	args := []string{"build", "-o", binary}
	if clocks {
		overlay, err := writeOverlay(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, "-buildvcs=false", "github.com/semelhq/semel/cmd/semel")...)
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return binary, nil
}

// checkout writes the files of a commit to a directory.
func checkout(tree, commit string) error {
	archive := exec.Command("git", "archive", "--format=tar", "--output", tree+".tar", commit)
	archive.Dir = filepath.Join("..", "..", "..") // git archives the directory that it runs in
	if out, err := archive.CombinedOutput(); err != nil {
		return fmt.Errorf("get %s: fetch the whole history, as by git fetch --unshallow: %w\n%s", commit, err, out)
	}
	return errors.Join(os.Mkdir(tree, 0o700), command("tar", "-C", tree, "-xf", tree+".tar"))
}

// writeOverlay writes what go build -overlay takes.
func writeOverlay(dir string) (file string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	replace := map[string]string{}
	write := func(name, text string) error {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		replace[filepath.Join(src, name)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	errs := []error{write("runtime/chaos.go", runtimeClock), write("time/chaos.go", timeClock)}
	for _, p := range patches {
		text, err := os.ReadFile(filepath.Join(src, p.file))
		if err != nil {
			return "", err
		}
		if strings.Count(string(text), p.old) != 1 {
			return "", fmt.Errorf("%s of this version of Go is not as expected: %q is not there once", p.file, p.old)
		}
		errs = append(errs, write(p.file, strings.Replace(string(text), p.old, p.new, 1)))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, errors.Join(errors.Join(errs...), os.WriteFile(file, text, 0o600))
}
