package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/semelhq/semel/internal/rig/servertest"
)

// mostWords is how long a tutorial of five minutes may be.
const mostWords = 600

var tutorialBlock = regexp.MustCompile("(?s)<!-- (write: \\S+|start|walk) -->\n```\\w+\n(.*?)```")

// ports are those that the tutorials show. A test has free ones instead.
var ports = []string{"127.0.0.1:3000", "127.0.0.1:8080", "127.0.0.1:8480", "127.0.0.1:8481"}

// TestTutorials does what each tutorial says, in its order, by what it shows and nothing else:
// it writes the files, starts the programs and types the commands.
func TestTutorials(t *testing.T) {
	files, err := filepath.Glob("../../../../docs/tutorial-*.md")
	if err != nil || len(files) != 6 {
		t.Fatal(files, err)
	}
	for _, tool := range []string{"curl", "python3", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
				t.Fatal("the tutorials need ", tool)
			}
			t.Skip("the tutorials need ", tool)
		}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "tutorial-"), ".md"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(strings.Fields(string(text))); n > mostWords {
				t.Errorf("it has %d words, more than %d", n, mostWords)
			}
			p := newTutorial(t)
			for _, block := range tutorialBlock.FindAllStringSubmatch(string(text), -1) {
				p.follow(block[1], block[2])
			}
		})
	}
}

type tutorial struct {
	*page
	ports map[string]string
	log   string
}

// newTutorial has a directory for the reader, beside a clone of the repository, and ports of
// its own.
func newTutorial(t *testing.T) *tutorial {
	t.Helper()
	own, places := map[string]string{}, []string{}
	for _, port := range ports {
		own[port] = "127.0.0.1:" + strconv.Itoa(servertest.FreePort(t))
		places = append(places, port, own[port])
	}
	p := &tutorial{page: newPage(t, places...), ports: own}
	clone, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(clone, filepath.Join(p.dir, "semel")); err != nil {
		t.Fatal(err)
	}
	p.dir = filepath.Join(p.dir, "shop")
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.log = filepath.Join(t.TempDir(), "log")
	p.env = append(p.env, "SEMEL_LISTEN_ADDRESS="+own["127.0.0.1:8480"], "SEMEL_ADMIN_ADDRESS="+own["127.0.0.1:8481"], "XDG_CONFIG_HOME="+t.TempDir(),
		"GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off") // what the clone needs is there already
	return p
}

// follow does what one block says.
func (p *tutorial) follow(kind, text string) {
	p.t.Helper()
	name, isFile := strings.CutPrefix(kind, "write: ")
	switch {
	case isFile:
		p.write(name, p.place.Replace(text))
	case kind == "start":
		p.start(strings.TrimSpace(strings.TrimPrefix(text, "$ ")))
	default:
		for _, step := range strings.Split("\n"+text, "\n$ ")[1:] {
			command, want := splitStep(step)
			if err := p.run(command, want); err != nil {
				log, _ := os.ReadFile(p.log)
				p.t.Fatalf("%v\n%s", err, log)
			}
		}
	}
}

// start starts a program that goes on, and waits for the address that the block or a file of
// the directory names.
func (p *tutorial) start(command string) {
	p.t.Helper()
	address := p.ports["127.0.0.1:8480"]
	if words := strings.Fields(command); words[0] != "semel" {
		address = p.ports["127.0.0.1:3000"]
		if words[0] == "go" {
			address = p.ports["127.0.0.1:8080"]
		}
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("sh", "-c", p.place.Replace(command))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the shell starts ends with it
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(p.t.Context())
	go func() { cancel(fmt.Errorf("%s ended: %w", command, cmd.Wait())) }()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended.Done()
	})
	for {
		if c, err := new(net.Dialer).DialContext(ended, "tcp", address); err == nil {
			c.Close()
			return
		}
		if ended.Err() != nil {
			text, _ := os.ReadFile(p.log)
			p.t.Fatalf("%v\n%s", context.Cause(ended), text)
		}
	}
}
