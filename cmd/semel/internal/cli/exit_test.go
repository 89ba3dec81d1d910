package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// leaves are the commands that do something.
func leaves(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.HasSubCommands() {
			all = append(all, leaves(sub)...)
		} else {
			all = append(all, sub)
		}
	}
	return all
}

// has reports whether a command takes a flag.
func has(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Lookup(flag) != nil || cmd.InheritedFlags().Lookup(flag) != nil
}

// enough are arguments for commands that need some, beside those of commands that ask.
var enough = map[string][]string{
	"semel store new-epoch":  {"--yes"},
	"semel archive read":     {"."},
	"semel archive verify":   {"."},
	"semel webhook verify":   {"delivery.http"},
	"semel config explain":   {"store"},
	"semel store audit":      {"--keys", "none.key"},
	"semel evidence verify":  {"--keys", "evidence.pub"},
	"semel records settle":   {"order-1", "--outcome", "completed", "--reason", "r", "--yes"},
	"semel messages discard": {"msg_none", "--reason", "r", "--yes"},
}

// wrongListeners are addresses at which an upstream answers everything: the data listener before
// it, although the upstream says that it is Semel, and one that redirects there. got lists the
// requests that came with a token.
func wrongListeners(t *testing.T) (proxied, redirecting string, got func() []string) {
	t.Helper()
	var mu sync.Mutex
	var tokens []string
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "" {
			tokens = append(tokens, r.Method+" "+r.URL.Path)
		}
		peer.Mark(w.Header(), peer.Admin)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Server", "upstream")
		_, _ = io.WriteString(w, `{"records":[],"operations":[],"nodes":1}`)
	}))
	t.Cleanup(up.Close)
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "" {
			tokens = append(tokens, r.Method+" "+r.URL.Path)
		}
		http.Redirect(w, r, up.URL+r.URL.Path, http.StatusPermanentRedirect)
	}))
	t.Cleanup(redirects.Close)
	proxied, _, _ = servingUntil(t, "store: {url: 'memory:'}\nroutes: [{match: /, upstream: '"+up.URL+"'}]\n")
	return proxied, redirects.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return tokens
	}
}

// TestExitCodes: what a command line is answered with is the same for all commands, and told
// once.
func TestExitCodes(t *testing.T) {
	t.Setenv("SEMEL_URL", "")
	t.Chdir(t.TempDir())
	_, public, _ := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", "evidence.key")
	write(t, "evidence.pub", public)
	write(t, "broken.yaml", "store: {url: 'pebble:x'}\nroutes: 7\n")
	write(t, "delivery.http", "POST / HTTP/1.1\r\n\r\n")
	st, err := service.OpenStore(t.Context(), config.Store{URL: "pebble:used"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	nobody := "http://" + refusing(t)

	t.Setenv("SEMEL_TOKEN", "the-admin-token")
	wrong, redirecting, got := wrongListeners(t)

	never := []string{"semel serve", "semel demo", "semel proxy", "semel mcp", "semel mcp wrap", "semel demo-provider", "semel man"} // run on, or write
	for _, c := range []struct {
		name  string
		flags []string // the first is one that the command needs to have
		code  int
		want  string
		other map[string]int
	}{
		{"a flag that there is not", []string{"--no-such-flag"}, ExitUsage, "unknown flag: --no-such-flag", nil},
		{"a service that nobody runs", []string{"--url", nobody}, ExitUnavailable, "", map[string]int{"semel doctor": ExitCheck, "semel healthcheck": ExitCheck, "semel webhook verify": -1, "semel context add": -1}},
		{"the listener that passes requests on", []string{"--url", wrong}, ExitUnavailable, "(status 200) doesn't come from the API: it has no Semel-Api header; content type application/json, server upstream", map[string]int{"semel webhook verify": -1, "semel context add": -1}},
		{"a listener that redirects", []string{"--url", redirecting}, ExitUnavailable, "it is a redirect, which is not followed", map[string]int{"semel webhook verify": -1, "semel context add": -1}},
		{"a directory without a store", []string{"--store", "pebble:none"}, ExitCheck, "there is no store in none", map[string]int{
			"semel doctor": -1, "semel healthcheck": -1, "semel top": -1, "semel tail": -1, "semel ids list": -1, "semel migrate up": -1, "semel migrate status": -1,
		}},
		{"a store in use", []string{"--store", "pebble:used"}, ExitUnavailable, "used is in use: stop the service", map[string]int{
			"semel doctor": -1, "semel healthcheck": -1, "semel top": -1, "semel tail": -1, "semel ids list": -1, "semel migrate up": -1, "semel migrate status": -1,
		}},
		{"a store that nobody runs", []string{"--store", "postgres://u@" + strings.TrimPrefix(nobody, "http://") + "/x"}, ExitUnavailable, "connection refused", map[string]int{
			"semel doctor": -1, "semel healthcheck": -1, "semel top": -1, "semel tail": -1, "semel ids list": -1,
		}},
		{"a configuration with a mistake", []string{"--config", "broken.yaml"}, ExitCheck, "broken.yaml:2:", map[string]int{"semel doctor": -1}},
		{"a configuration that there is not", []string{"--config", "none.yaml"}, ExitUsage, "there is no file none.yaml", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, cmd := range leaves(newRoot()) {
				path := cmd.CommandPath()
				flag := strings.TrimPrefix(c.flags[0], "--")
				code, other := c.other[path]
				switch {
				case code == -1, flag != "no-such-flag" && (!has(cmd, flag) || slices.Contains(never, path) && path != "semel serve"):
					continue
				case path == "semel serve" && c.code == ExitCheck && c.flags[0] == "--store":
					continue // it makes a store, and goes on
				case !other:
					code = c.code
				}
				args := enough[path]
				if args == nil {
					args = asking[path].args
				}
				args = slices.Concat(strings.Fields(path)[1:], args, c.flags)
				args = slices.DeleteFunc(args, func(a string) bool { return a == "PUBLIC" })
				got, out, errs := semelWith(t, "", args...)
				if got != code || !strings.Contains(errs, c.want) || strings.Contains(out, c.want) && c.want != "" {
					t.Errorf("%q: exit %d instead of %d, %s%s", args, got, code, out, errs)
				}
				lines := strings.Split(strings.TrimSpace(errs), "\n")
				said := slices.Clone(lines)
				slices.Sort(said)
				if len(slices.Compact(said)) != len(lines) || strings.Count("\n"+errs, "\nsemel: ") > 1 {
					t.Errorf("%q says it twice: %s", args, errs)
				}
			}
		})
	}
	if tokens := got(); len(tokens) > 0 {
		t.Errorf("the token went to strangers: %q", tokens)
	}
	if _, err := os.Stat("none"); err == nil {
		t.Error("a command has made a store")
	}
}

// TestOneSpellingOfConfig: the file of the service's configuration has one name.
func TestOneSpellingOfConfig(t *testing.T) {
	for _, cmd := range leaves(newRoot()) {
		check := func(f *pflag.Flag) {
			if of := strings.Contains(f.Usage, "`file`") && strings.Contains(f.Usage, "configuration"); of != (f.Name == "config") {
				t.Errorf("%s --%s: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		}
		cmd.Flags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
	}
}

// refusing is an address that refuses connections: a socket has it, so that nobody else gets the
// port, and doesn't listen.
func refusing(t *testing.T) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port)
}
