// Command release makes the artefacts of a version, from the commit in the work tree, and proves
// that they can be installed:
//
//	release -out ../dist          make everything
//	release -prove -out ../dist   install them into empty roots, and run the demo there
//
// It asks no network but the Go module proxy, and two runs of one commit with one version of Go
// make the same bytes.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is one version of the program, as it is published.
type release struct {
	root, out string    // the repository, and where the artefacts go
	version   string    // such as 0.1.0
	commit    string    // that is checked out
	time      time.Time // of the commit; all files have it
	modified  bool      // the tree has changes that aren't in the commit
	key       string    // file with an SSH key that signs the checksums; empty: nobody signs
	platforms []platform
}

// platform is a system that the program is built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// lacks says what the program can't do on a system that isn't Linux. docs/install.md says the same.
func lacks(system string) []string {
	var missing []string
	if system != "linux" {
		missing = append(missing,
			"time that the machine sleeps is taken for a leap of the clock",
			"the gateways for MCP and A2A can't tell whether an answer arrived")
	}
	if system == "windows" {
		missing = append(missing,
			"no signal reloads the configuration: use POST /v1/reload",
			"files of the store have the rights of their directory, and token files aren't checked for those of others",
			"an archive isn't locked: one program at a time may write to it",
			"idle connections to an upstream aren't looked at before they are used again")
	}
	return missing
}

func main() {
	var r release
	flag.StringVar(&r.root, "root", "..", "the repository")
	flag.StringVar(&r.out, "out", "../dist", "where the artefacts go")
	flag.StringVar(&r.key, "key", "", "SSH key that signs the checksums")
	only := flag.String("only", "", "`platforms`, such as linux_amd64,darwin_arm64, instead of all")
	prove := flag.Bool("prove", false, "install what was made")
	flag.Parse()
	r.platforms = slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool {
		return *only != "" && !slices.Contains(strings.Split(*only, ","), p.String())
	})
	if err := r.run(*prove); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(prove bool) error {
	err := r.read()
	if err == nil && prove {
		return r.prove(os.Stdout)
	}
	if err == nil {
		err = r.make()
	}
	return err
}

var heading = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`)

// read asks git for the commit. The version is the newest one in the change log.
func (r *release) read() (err error) {
	for _, dir := range []*string{&r.root, &r.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	log, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	m := heading.FindSubmatch(log)
	if m == nil {
		return errors.New("CHANGELOG.md has no version")
	}
	r.version = string(m[1])
	show, err := r.command("git", "show", "-s", "--format=%H %ct", "HEAD")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(show, " ")
	r.commit = commit
	at, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), seconds), 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(at, 0).UTC()
	status, err := r.command("git", "status", "--porcelain")
	r.modified = status != ""
	return err
}

// command runs a program in the repository, and returns its output.
func (r *release) command(name string, args ...string) (string, error) {
	return output(exec.Command(name, args...), r.root)
}

func output(cmd *exec.Cmd, dir string) (string, error) {
	var errs bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", cmd, err, out, errs.Bytes())
	}
	return strings.TrimSpace(string(out)), err
}

// make makes all artefacts. The directory is emptied first, so nothing of an earlier version is
// in the checksums.
func (r *release) make() error {
	if r.modified {
		fmt.Println("the tree has changes that no commit has: the version says so")
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(r.out, "npm"), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "semel-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	var built []binary
	for _, p := range r.platforms {
		b, err := r.build(p, filepath.Join(work, p.String()))
		if err != nil {
			return err
		}
		built = append(built, b)
		for _, what := range lacks(p.os) {
			fmt.Printf("%s: %s\n", p, what)
		}
	}
	for _, step := range []func([]binary) error{r.archives, r.debs, r.npm, r.image, r.deployment, r.boms, r.provenance} {
		if err := step(built); err != nil {
			return err
		}
	}
	return r.sums()
}
