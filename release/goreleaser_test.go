package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// TestGoReleaser: who publishes with GoReleaser publishes what make release makes, under the same
// names.
func TestGoReleaser(t *testing.T) {
	p := must(config.Load("../.goreleaser.yaml"))(t)
	r := &release{root: "..", version: "{{ .Version }}", commit: "{{ .FullCommit }}"}
	b := p.Builds[0]
	var ours []platform
	for _, system := range b.Goos {
		for _, arch := range b.Goarch {
			ours = append(ours, platform{system, arch})
		}
	}
	if !slices.Equal(ours, platforms) || !slices.Equal(b.Env, []string{"CGO_ENABLED=0"}) {
		t.Errorf("it builds for %v with %v", ours, b.Env)
	}
	flags := append(slices.Clone(b.Flags), "-ldflags", strings.ReplaceAll(b.Ldflags[0], "{{ .CommitDate }}", "0001-01-01T00:00:00Z"))
	if !slices.Equal(flags, r.flags()) {
		t.Errorf("flags\n%q, want\n%q", flags, r.flags())
	}
	a := p.Archives[0]
	if a.NameTemplate != "semel_{{ .Version }}_{{ .Os }}_{{ .Arch }}" || !slices.Equal(a.Formats, []string{"tar.gz"}) || a.FormatOverrides[0].Goos != "windows" || !slices.Equal(a.FormatOverrides[0].Formats, []string{"zip"}) {
		t.Errorf("archives %+v", a)
	}
	theirs := p.NFPMs[0]
	info := r.deb(binary{platform: platforms[0], file: "semel"})
	if theirs.Maintainer != info.Maintainer || theirs.Description != info.Description || theirs.License != info.License || theirs.PackageName != info.Name || theirs.Bindir != "/usr/bin" {
		t.Errorf("the package %+v", theirs)
	}
	for _, want := range info.Contents {
		if want.Destination == "/usr/bin/semel" {
			continue // comes from the build
		}
		if !slices.ContainsFunc(theirs.Contents, func(c config.NFPMContent) bool {
			return filepath.Join("..", c.Source) == want.Source && c.Destination == want.Destination && c.Type == want.Type
		}) {
			t.Errorf("its package lacks %s, %s", want.Destination, want.Type)
		}
	}
	for _, script := range []string{theirs.Scripts.PostInstall, theirs.Scripts.PreRemove, theirs.Scripts.PostRemove} {
		if _, err := os.Stat(filepath.Join("..", script)); err != nil {
			t.Error(err)
		}
	}
	if p.Checksum.NameTemplate != sumsFile || p.Signs[0].Cmd != "ssh-keygen" {
		t.Errorf("checksums in %s, signed by %s", p.Checksum.NameTemplate, p.Signs[0].Cmd)
	}
}
