package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
)

// walkBlock is what a document shows to be typed.
var walkBlock = regexp.MustCompile("(?s)<!-- walk -->\n```sh\n(.*?)```")

// page is a document whose walks are run as they are printed, in their order, by a shell in a
// directory that has the program as semel and what stands for the machine's own tools.
type page struct {
	t     *testing.T
	dir   string
	env   []string
	place *strings.Replacer // what the test has instead of names of the document
}

// newPage makes a page whose commands find the program in their path.
func newPage(t *testing.T, place ...string) *page {
	t.Helper()
	exe := program(t)
	p := &page{t: t, dir: t.TempDir(), place: strings.NewReplacer(place...)}
	bin := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(bin, "semel")); err != nil {
		t.Fatal(err)
	}
	p.tool(bin, "systemctl", systemctl)
	p.env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "RUNTIME="+t.TempDir())
	t.Cleanup(func() { // a failed test may leave the service running
		if text, err := os.ReadFile(filepath.Join(p.runtime(), "pid")); err == nil {
			_ = exec.Command("kill", "-KILL", strings.TrimSpace(string(text))).Run()
		}
	})
	return p
}

// systemctl stands for that of systemd: it starts the service of semel.yaml in the directory,
// waits until it is ready, and stops it.
const systemctl = `#!/bin/sh
set -eu
case "$1" in
start)
	semel serve --config semel.yaml --json >"$RUNTIME/address" 2>>"$RUNTIME/log" </dev/null &
	echo $! >"$RUNTIME/pid"
	for i in $(seq 600); do
		if [ -s "$RUNTIME/address" ]; then exit 0; fi
		kill -0 "$(cat "$RUNTIME/pid")" 2>/dev/null || break
		sleep 0.05
	done
	cat "$RUNTIME/log" >&2
	exit 1 ;;
stop)
	pid=$(cat "$RUNTIME/pid")
	kill "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
	rm "$RUNTIME/pid" "$RUNTIME/address" ;;
esac
`

func (p *page) runtime() string {
	for _, e := range p.env {
		if dir, ok := strings.CutPrefix(e, "RUNTIME="); ok {
			return dir
		}
	}
	return ""
}

func (p *page) tool(dir, name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
}

// write writes a file of the directory.
func (p *page) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// walks runs the walks of a section of a document up to the next heading, or of all of it if
// the heading is empty.
// What is shown below a command is what it prints, where "..." stands for any text; a command
// that fails is one below which stands an error of the program, or what a check found BAD.
func (p *page) walks(document, heading string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../..", document))
	if err != nil {
		p.t.Fatal(err)
	}
	section := string(text)
	if heading != "" {
		_, after, ok := strings.Cut(section, "\n"+heading+"\n")
		if !ok {
			p.t.Fatalf("%s has no section %q", document, heading)
		}
		section, _, _ = strings.Cut(after, "\n##")
	}
	commands := 0
	for _, block := range walkBlock.FindAllStringSubmatch(section, -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want := splitStep(part)
			commands++
			if err := p.run(command, want); err != nil {
				log, _ := os.ReadFile(filepath.Join(p.runtime(), "log"))
				p.t.Fatalf("%s: %v\n%s", document, err, log)
			}
		}
	}
	if commands == 0 {
		p.t.Errorf("%s: %q has no command", document, heading)
	}
}

// splitStep splits a command from what is shown below it.
func splitStep(step string) (command, want string) {
	command, want, _ = strings.Cut(step, "\n")
	for strings.HasSuffix(command, "\\") { // it goes on in the next line
		var more string
		more, want, _ = strings.Cut(want, "\n")
		command += "\n" + more
	}
	return command, want
}

func (p *page) run(command, want string) error {
	cmd := exec.CommandContext(p.t.Context(), "sh", "-c", p.place.Replace(command))
	cmd.Dir, cmd.Env = p.dir, p.env
	got, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); ended && (strings.Contains(want, "semel: ") || strings.HasPrefix(want, "BAD ")) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("$ %s\n%s%w", command, got, err)
	}
	want = strings.TrimSpace(p.place.Replace(want))
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), `\.\.\.`, "(?s:.*)")
	if want != "" && !regexp.MustCompile("^"+pattern+"$").MatchString(strings.TrimSpace(string(got))) {
		return fmt.Errorf("$ %s\nprinted\n%s\nnot\n%s", command, got, want)
	}
	return nil
}

// socket is the directory of a server's socket.
func socket(server *pgtest.Server) string {
	_, after, _ := strings.Cut(server.URL("x"), "host=")
	dir, _, _ := strings.Cut(after, "&")
	return dir
}

// onPostgreSQL is a page that finds a server's databases at the host db, and whose tools
// connect to it as an administrator.
func onPostgreSQL(t *testing.T, place ...string) *page {
	t.Helper()
	server := pgtest.Start(t, nil)
	dir := socket(server)
	p := newPage(t, append(place, "@db/semel_restored", "@/semel_restored?host="+dir, "@db/semel", "@/semel?host="+dir)...)
	p.env = append(p.env, "PGHOST="+dir, "PGUSER=postgres", "PGDATABASE=postgres")
	return p
}

// makeRoles does what docs/postgresql.md begins with.
func (p *page) makeRoles() {
	p.t.Helper()
	for _, command := range []string{
		"psql -c 'CREATE ROLE semel_owner LOGIN' -c 'CREATE ROLE semel_app LOGIN' -c 'CREATE DATABASE semel OWNER semel_owner'",
		"semel migrate up --store postgres://semel_owner@db/semel",
		"semel migrate print --role semel_app | psql postgres://semel_owner@db/semel",
	} {
		if err := p.run(command, ""); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestPageOfPostgreSQL runs docs/postgresql.md.
func TestPageOfPostgreSQL(t *testing.T) {
	p := onPostgreSQL(t)
	p.walks("docs/postgresql.md", "")
}

// onRedis is a page that finds a server at the host redis, which keeps what it knows, and
// starts another one on a port.
func onRedis(t *testing.T, restored string) (*page, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t, "always")
	return newPage(t, "6380", restored, "-h redis", "-p "+server.Addr[strings.LastIndex(server.Addr, ":")+1:]), server
}

// TestPageOfUpgrades runs docs/upgrade.md with this version on both sides, on PostgreSQL.
func TestPageOfUpgrades(t *testing.T) {
	admin := strconv.Itoa(servertest.FreePort(t))
	p := onPostgreSQL(t, "127.0.0.1:8481", "127.0.0.1:"+admin)
	p.makeRoles()
	p.write("semel.yaml", p.place.Replace("listen: {address: 127.0.0.1:0}\nadmin: {address: 127.0.0.1:8481}\nstore: {url: \"postgres://semel_app@db/semel\"}\n"))
	if err := p.run("systemctl start semel", ""); err != nil {
		t.Fatal(err)
	}
	p.walks("docs/upgrade.md", "")
	if err := p.run("systemctl stop semel", ""); err != nil {
		t.Error(err)
	}
}
