//go:build linux

package chaos

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestChaosMovesClocks builds a program whose clocks can be moved, as the nodes are, and
// moves them while it runs.
func TestChaosMovesClocks(t *testing.T) {
	if *duration == 0 {
		t.Skip("the standard library is built only where -chaos.duration says that there is time")
	}
	dir := t.TempDir()
	overlay, err := writeOverlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	binary, file := filepath.Join(dir, "clocks"), filepath.Join(dir, "clock")
	if err := command("go", "build", "-overlay", overlay, "-o", binary, filepath.Join("testdata", "clocks", "main.go")); err != nil {
		t.Fatal(err)
	}
	if err := writeClock(file, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), clockEnv+"="+file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	ask := func() (wall, since, kernel time.Duration) {
		t.Helper()
		var sec int64
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscanln(lines, &sec, &since, &kernel); err != nil {
			t.Fatal(err)
		}
		return time.Duration(sec) * time.Second, since, kernel
	}
	// What a busy machine may take between two questions is far from what is moved.
	const far, near = 10 * time.Hour, time.Hour
	wall, since, kernel := ask()
	if err := writeClock(file, far, -far); err != nil {
		t.Fatal(err)
	}
	wall2, since2, kernel2 := ask()
	for name, moved := range map[string]time.Duration{
		"the wall clock": wall2 - wall - far, "the monotonic clock": since2 - since + far, "the kernel's clock": kernel2 - kernel + far,
	} {
		if moved < -near || moved > near {
			t.Errorf("%s is off by %v", name, moved)
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
