package cli

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/archive"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store/codec"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

// The linker sets these in a release, which is built without a repository.
var release, commit, committed string

// formats are the newest forms that this program writes. It reads all before them.
var formats = map[string]int{"archive": archive.Version, "embedded": pebblestore.Format, "evidence": evidence.Version, "postgresql": pgstore.Schema, "records": codec.Version, "redis": redisstore.Format}

// versionInfo is what semel version --json prints.
type versionInfo struct {
	Version string `json:"version"`
	// Commit and Time are of the commit that was built, Modified says that the tree had other changes.
	// All are empty if the build doesn't know, and Version then has the digest of the program.
	Commit   string         `json:"commit"`
	Time     string         `json:"time"`
	Modified bool           `json:"modified"`
	Go       string         `json:"go"`
	OS       string         `json:"os"`
	Arch     string         `json:"arch"`
	Formats  map[string]int `json:"formats"` // the number of each stored form
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: `Print the version of this program, what it was built from, and the numbers of the forms
in which it stores. A build that doesn't know its commit has a digest in its version.

The JSON has version, commit, time, modified, go, os, arch and formats; time is the commit's.`,
		Example: `  semel version
  semel version --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := thisBuild()
			return printOne(cmd, v, v.line()+"\nstored forms: "+strings.Trim(strings.TrimPrefix(fmt.Sprint(v.Formats), "map"), "[]"))
		},
	}
	return jsonFlag(cmd)
}

// line is the version on one line.
func (v versionInfo) line() string {
	text := "semel " + v.Version
	if v.Commit != "" {
		modified := map[bool]string{true: ", modified"}
		text += " (" + v.Commit[:min(12, len(v.Commit))] + modified[v.Modified] + strings.TrimSuffix(", "+v.Time, ", ") + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", text, v.Go, v.OS, v.Arch)
}

// thisBuild is the version of this program. If its build doesn't know the commit, that costs
// reading the program once.
var thisBuild = sync.OnceValue(func() versionInfo {
	v := buildVersion(debug.ReadBuildInfo())
	if exe, err := os.Executable(); err == nil && v.Version == "(devel)" && v.Commit == "" {
		if text, err := os.ReadFile(exe); err == nil {
			digest := sha256.Sum256(text)
			v.Version = fmt.Sprintf("(devel)-%x", digest[:6])
		}
	}
	return v
})

// buildVersion takes from the build what versionInfo needs.
func buildVersion(info *debug.BuildInfo, ok bool) versionInfo {
	v := versionInfo{Version: "(devel)", Commit: commit, Time: committed, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Formats: formats}
	if !ok {
		return v
	}
	v.Version = cmp.Or(release, info.Main.Version, v.Version)
	v.Go = cmp.Or(info.GoVersion, v.Go)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
