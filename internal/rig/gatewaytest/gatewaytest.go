// Package gatewaytest runs real programs of other people between Semel and an upstream, for
// tests of the answers that such a program gives in place of the upstream. They listen on free
// ports of the loopback interface, and write to a temporary directory. A test that needs one
// that isn't installed is skipped; with SEMEL_REQUIRE_SERVICES=1 it fails instead.
package gatewaytest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/servertest"
)

// Varnish starts a cache in front of an upstream, with the configuration that it has in
// Debian, except that it gives up on an upstream which hasn't begun to answer after
// patience. It returns its URL.
func Varnish(tb testing.TB, upstream string, patience time.Duration) string {
	tb.Helper()
	servertest.Need(tb, "varnishd", "varnish")
	host, port := split(tb, upstream)
	dir := tb.TempDir()
	vcl := write(tb, dir, "default.vcl", fmt.Sprintf("vcl 4.1;\nbackend default { .host = %q; .port = %q; .first_byte_timeout = %dms; }\n", host, port, patience.Milliseconds()))
	return start(tb, dir, "varnishd", func(at string) []string {
		return []string{"-j", "none", "-F", "-n", filepath.Join(dir, "work"), "-a", at, "-f", vcl}
	})
}

// The files of Debian's packages that Firewall needs.
const (
	apacheModules = "/usr/lib/apache2/modules"
	modsecurity   = "/etc/modsecurity"
	coreRules     = "/usr/share/modsecurity-crs/rules"
)

// Firewall starts Apache with ModSecurity and the OWASP core rule set in front of an
// upstream, as Debian packages them, with SecRuleEngine On and nothing else set. The rules
// look at answers too. It returns its URL.
func Firewall(tb testing.TB, upstream string) string {
	tb.Helper()
	servertest.Need(tb, "apache2", "apache2")
	servertest.NeedFile(tb, filepath.Join(apacheModules, "mod_security2.so"), "libapache2-mod-security2")
	servertest.NeedFile(tb, coreRules, "modsecurity-crs")
	recommended, err := os.ReadFile(filepath.Join(modsecurity, "modsecurity.conf-recommended"))
	servertest.Check(tb, err)
	dir := tb.TempDir()
	// Apache's children run as another user, who has to reach the directory.
	for d := dir; d != filepath.Dir(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err == nil && info.Mode().Perm()&0o005 != 0o005 && d != os.TempDir() {
			servertest.Check(tb, os.Chmod(d, 0o755))
		}
	}
	data := filepath.Join(dir, "data")
	servertest.Check(tb, os.Mkdir(data, 0o777))
	servertest.Check(tb, os.Chmod(data, 0o777))
	security := write(tb, dir, "modsecurity.conf", strings.NewReplacer(
		"SecRuleEngine DetectionOnly", "SecRuleEngine On",
		"SecUnicodeMapFile unicode.mapping", "SecUnicodeMapFile "+filepath.Join(modsecurity, "unicode.mapping"),
		"/var/log/apache2/modsec_audit.log", filepath.Join(data, "audit.log"),
	).Replace(string(recommended)))
	return start(tb, dir, "apache2", func(at string) []string {
		var conf strings.Builder
		fmt.Fprintf(&conf, "ServerRoot %q\nPidFile %q\nErrorLog /dev/stderr\nListen %s\nServerName gateway.test\n", dir, filepath.Join(dir, "pid"), at)
		for _, m := range []string{"mpm_event", "authz_core", "proxy", "proxy_http", "unique_id"} {
			fmt.Fprintf(&conf, "LoadModule %s_module %s/mod_%s.so\n", m, apacheModules, m)
		}
		fmt.Fprintf(&conf, "LoadModule security2_module %s/mod_security2.so\n", apacheModules)
		if os.Geteuid() == 0 {
			conf.WriteString("User nobody\nGroup nogroup\n")
		}
		fmt.Fprintf(&conf, "SecDataDir %q\nInclude %q\nInclude %s/crs/crs-setup.conf\nInclude %s/*.conf\nProxyPass / %s/\n", data, security, modsecurity, coreRules, upstream)
		return []string{"-f", write(tb, dir, "apache.conf", conf.String()), "-DFOREGROUND"}
	})
}

// start runs a program with the arguments for an address, and returns its URL.
func start(tb testing.TB, dir, program string, args func(at string) []string) string {
	tb.Helper()
	path, err := servertest.Find(program)
	servertest.Check(tb, err)
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(servertest.FreePort(tb)))
	list := args(at)
	s := &servertest.Server{TB: tb, Graceful: syscall.SIGTERM}
	s.Process = servertest.Process{
		Dir:     dir,
		Command: func() (*exec.Cmd, error) { return exec.Command(path, list...), nil },
		Answers: func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
			if err == nil {
				err = conn.Close()
			}
			return err
		},
	}
	servertest.Check(tb, s.Process.Start())
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s printed:\n%s", program, s.Log())
		}
		s.Stop()
	})
	return "http://" + at
}

func split(tb testing.TB, upstream string) (host, port string) {
	tb.Helper()
	u, err := url.Parse(upstream)
	servertest.Check(tb, err)
	return u.Hostname(), u.Port()
}

func write(tb testing.TB, dir, name, text string) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	servertest.Check(tb, os.WriteFile(path, []byte(text), 0o644))
	return path
}
