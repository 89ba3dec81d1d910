package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// way is one way to install the program.
type way struct {
	name string
	// install fills an empty directory, and returns the command that runs the
	// program.
	install func(r *release, root string) (*exec.Cmd, error)
}

var ways = []way{
	{"archive", (*release).installArchive}, {"deb", (*release).installDeb}, {"npm", (*release).installNPM},
	{"image", (*release).installImage}, {"go install", (*release).installModule},
}

// firstEffect is what the demo prints when the first calls behind the guard have been executed,
// each once.
const firstEffect = "ok: 20 charges for 20 orders"

// prove installs the artefacts in each way, runs the demo, and prints how long it takes from the
// beginning of the installation to the first effect. It needs root, for roots of their own.
func (r *release) prove(w io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can give a program a root directory of its own: run it in a container")
	}
	if err := r.checkContents(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "%-12s %12s %16s\n", "", "installed", "first effect")
	for _, way := range ways {
		installed, first, err := r.try(way)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		fmt.Fprintf(w, "%-12s %10.1f s %14.1f s\n", way.name, installed.Seconds(), first.Seconds())
	}
	return nil
}

// try installs the program in one way. Both durations begin when the installation does.
func (r *release) try(w way) (installed, first time.Duration, err error) {
	root, err := os.MkdirTemp("", "semel-root-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := os.Chmod(root, 0o755); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	cmd, err := w.install(r, root)
	if err != nil {
		return 0, 0, err
	}
	installed = time.Since(start)
	cmd.Args = append(cmd.Args, "demo", "--exit")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	var told strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&told, lines.Text())
		if first == 0 && strings.Contains(lines.Text(), firstEffect) {
			first = time.Since(start)
		}
	}
	err = cmd.Wait()
	if err == nil && first == 0 {
		err = errors.New("the demo showed no effect")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", cmd, err, told.String(), errs.String())
	}
	return installed, first, err
}

// isolated is a command within a root of its own, with a view of its own on processes. All that it
// finds beside the installed files are the devices, /proc, and a directory for temporary files,
// which every system has.
func isolated(root, user string, env []string, program string, args ...string) (*exec.Cmd, error) {
	for _, dir := range []string{"proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return nil, err
	}
	const script = `root=$1; shift
mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"
exec env -i "$@"`
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		return nil, err
	}
	line := []string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", script, "sh", root}
	line = append(append(line, env...), chroot, "--userspec="+user, root, program)
	return exec.Command("unshare", append(line, args...)...), nil
}

// here is the platform of this machine, as the names of artefacts have it.
func here() platform { return platform{runtime.GOOS, runtime.GOARCH} }

func (r *release) installArchive(root string) (*exec.Cmd, error) {
	name := fmt.Sprintf("semel_%s_%s", r.version, here())
	if _, err := r.command("tar", "-xzf", filepath.Join(r.out, name+".tar.gz"), "-C", root); err != nil {
		return nil, err
	}
	return isolated(root, "1000:1000", nil, "/"+name+"/semel")
}

// installDeb lets dpkg install the package, with its scripts, into a root that has a shell.
func (r *release) installDeb(root string) (*exec.Cmd, error) {
	if err := r.shell(root); err != nil {
		return nil, err
	}
	if err := r.dpkg(root); err != nil {
		return nil, err
	}
	return isolated(root, "1000:1000", nil, "/usr/bin/semel")
}

// shell puts a shell into a root, for the scripts of a package.
func (r *release) shell(root string) error {
	for _, dir := range []string{"bin", "var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		return err
	}
	if _, err := r.command("cp", "/bin/busybox", filepath.Join(root, "bin", "busybox")); err != nil {
		return err
	}
	return os.Symlink("busybox", filepath.Join(root, "bin", "sh"))
}

func (r *release) dpkg(root string) error {
	_, err := r.command("dpkg", "--root="+root, "--log=/dev/null", "--force-confold", "--install", filepath.Join(r.out, fmt.Sprintf("semel_%s_%s.deb", r.version, runtime.GOARCH)))
	return err
}
