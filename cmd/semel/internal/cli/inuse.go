package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/semelhq/semel/server"
	"github.com/semelhq/semel/server/config"
)

// addressFile is the file in the directory of a store that says where the service that has
// it open listens for operators: semel proxy picks a free port by default.
const addressFile = "admin-url"

// noteAddress writes the address of operators beside the store that a service has open, and
// returns what removes it. A service that is killed leaves it behind, and the next one
// replaces it; only who finds the directory in use reads it. Without it people look into
// the log, so failing to write it stops nobody.
func noteAddress(cfg *config.Config, s *server.Server) (forget func()) {
	dir, embedded := strings.CutPrefix(cfg.Store.URL, "pebble:")
	if !embedded {
		return func() {}
	}
	file := filepath.Join(dir, addressFile)
	_, url := addressOf(s.AdminAddr(), cfg.Admin.TLS)
	_ = os.WriteFile(file, []byte(url+"\n"), 0o600)
	return func() { _ = os.Remove(file) }
}

// inUse says who has a store open that can't be opened for that, if err says so. A command
// that can ask a service names what it then needs.
func inUse(err error, storeURL string, asks bool) error {
	if err == nil || !strings.Contains(err.Error(), "in use by another") {
		return err
	}
	dir := strings.TrimPrefix(storeURL, "pebble:")
	text := dir + " is in use: stop the service that has it open"
	url, noted := os.ReadFile(filepath.Join(dir, addressFile))
	switch {
	case asks && noted == nil:
		text += ", or ask it with --url " + strings.TrimSpace(string(url))
	case asks:
		text += ", or ask it with --url"
	case noted == nil:
		text += fmt.Sprintf("; operators reach it at %s", strings.TrimSpace(string(url)))
	}
	return &exitError{ExitUnavailable, errors.New(text)}
}
