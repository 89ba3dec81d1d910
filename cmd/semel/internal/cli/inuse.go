package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// addressFile, in the directory of a store, has the address for operators and the process id of the
// service that has the store open: semel proxy picks a free port by default.
const addressFile = "admin-url"

// noteAddress writes the address for operators beside the store that a service has open, and
// returns a function that removes it. A service that is killed leaves it behind, and the next one
// replaces it; it is read only while the directory is in use. Failing to write it stops nobody: the
// log has the address too.
func noteAddress(cfg *config.Config, s *service.Server) (forget func()) {
	dir, embedded := strings.CutPrefix(cfg.Store.URL, "pebble:")
	if !embedded {
		return func() {}
	}
	file := filepath.Join(dir, addressFile)
	_, url := addressOf(s.AdminAddr(), cfg.Admin.TLS, "")
	_ = os.WriteFile(file, fmt.Appendf(nil, "%s %d\n", url, os.Getpid()), 0o600)
	return func() { _ = os.Remove(file) }
}

// noted returns the address that a service has written into a directory, and whether its process is
// alive: somebody else may listen on a dead one's port, and must not get a token. For the same
// reason, only a file that nobody else can write counts, with an address of this machine: the
// directory may come from an archive.
func noted(dir string) (url string, alive bool) {
	file := filepath.Join(dir, addressFile)
	text, err := os.ReadFile(file)
	words := strings.Fields(string(text))
	if err != nil || len(words) != 2 || !peer.OnlyOurs(file) || !peer.OnlyOurs(dir) || !onThisMachine(words[0]) {
		return "", false
	}
	pid, err := strconv.Atoi(words[1])
	if err != nil {
		return "", false
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Signal(syscall.Signal(0))
		alive = err == nil || errors.Is(err, os.ErrPermission)
	}
	return words[0], alive
}

// onThisMachine reports whether the host of a URL is an address of this machine.
func onThisMachine(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	if ip == nil || ip.IsLoopback() || ip.IsUnspecified() {
		return ip != nil
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

// inUseError says that another process has a store open.
type inUseError struct {
	dir, url string // url is the admin listener, if one answers there
	text     string
}

func (e *inUseError) Error() string { return e.text }

// inUse says who has a store open, if that is why opening it failed with err. If the command can
// ask a service instead, asks, the error says how. If nobody answers at the store's address, only
// the exit code says so.
func inUse(err error, storeURL string, asks bool) error {
	switch {
	case unreached(err):
		return &exitError{ExitUnavailable, err}
	case err == nil || !strings.Contains(err.Error(), "in use by another"):
		return err
	}
	e := &inUseError{dir: strings.TrimPrefix(storeURL, "pebble:")}
	e.text = e.dir + " is in use: stop the service that has it open"
	url, alive := noted(e.dir)
	switch {
	case asks:
		e.text += strings.TrimSuffix(", or ask it with --url "+url, " ")
	case url != "":
		e.text += ", or name another with --store; while it runs, 'semel doctor --url " + url + "' checks the store"
	}
	if alive && asks {
		e.url = url
	}
	return &exitError{ExitUnavailable, e}
}
