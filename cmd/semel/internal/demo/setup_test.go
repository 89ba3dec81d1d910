package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// setup is the configuration of Semel for the tour, to which each door adds its part.
type setup struct {
	dir      string
	upstream string // where the toy service expects Semel
	sections map[string][]string
}

// tenant and actor are whose calls the tour makes.
const (
	tenant = "shop"
	actor  = "storm"
)

// tourLease is short, so that the calls of a killed process are soon known to be
// abandoned. Holders renew it three times as often.
const tourLease = "2s"

func newSetup(dir, upstream string) *setup {
	return &setup{dir: dir, upstream: upstream, sections: map[string][]string{}}
}

// guarded is the part that belongs to no door.
func (c *setup) guarded(tokenDigest string) {
	c.add("auth", "default_tenant: "+tenant)
	c.add("auth", "tokens: [{name: %s, sha256: %s, roles: [operator], rights: ['orders:charge']}]", actor, tokenDigest)
}

// unguarded lets everything through to the toy service.
func (c *setup) unguarded() {
	c.add("routes", `- {match: /, upstream: %q, mode: "off"}`, c.upstream)
}

// add adds lines to a section, which is a list or a mapping.
func (c *setup) add(section, format string, args ...any) {
	c.sections[section] = append(c.sections[section], strings.Split(strings.TrimSpace(fmt.Sprintf(format, args...)), "\n")...)
}

// file writes a file that the configuration names.
func (c *setup) file(name, text string) error {
	return os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600)
}

// secret writes a file that stays the same when Semel is started again.
func (c *setup) secret(name string, text func() (string, error)) error {
	if _, err := os.Stat(filepath.Join(c.dir, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, err := text()
	if err != nil {
		return err
	}
	return c.file(name, made)
}

// String is the configuration.
func (c *setup) String() string {
	var b strings.Builder
	b.WriteString(commonConfiguration)
	for _, section := range slices.Sorted(maps.Keys(c.sections)) {
		fmt.Fprintf(&b, "%s:\n", section)
		for _, line := range c.sections[section] {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	return b.String()
}

// write writes the configuration.
func (c *setup) write() error { return c.file(configName, c.String()) }
