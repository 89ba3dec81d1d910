package main

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debs writes a Debian package for each architecture of Linux. Its scripts are in packaging/deb:
// they start nothing that wasn't started before, and restart nothing that wouldn't start.
func (r *release) debs(built []binary) error {
	for _, b := range built {
		if b.os != "linux" {
			continue
		}
		info := r.deb(b)
		name := fmt.Sprintf("semel_%s_%s.deb", r.version, b.arch)
		err := nfpm.PrepareForPackager(info, "deb")
		if err == nil {
			err = r.create(name, func(w io.Writer) error { return deb.Default.Package(info, w) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *release) deb(b binary) *nfpm.Info {
	ours := func(name string) string {
		return filepath.Join(r.root, "release", "packaging", filepath.FromSlash(name))
	}
	file := func(source, destination string, mode fs.FileMode) *files.Content {
		return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.time}}
	}
	config := file(ours("semel.yaml"), "/etc/semel/semel.yaml", 0o644)
	config.Type = files.TypeConfigNoReplace // what an operator wrote stays
	return nfpm.WithDefaults(&nfpm.Info{
		Name: "semel", Arch: b.arch, Platform: "linux", Version: r.version, Section: "net", Priority: "optional", MTime: r.time, DisableGlobbing: true,
		Maintainer:  "The Semel authors <semelhq@users.noreply.github.com>",
		Description: "Exactly-once effects over at-least-once delivery\nA reverse proxy and a service that run each call once, and answer every\nretry with the recorded outcome.",
		Homepage:    "https://github.com/semelhq/semel", License: "Apache-2.0",
		Overridables: nfpm.Overridables{
			Recommends: []string{"ca-certificates"},
			Contents: files.Contents{
				file(b.file, "/usr/bin/semel", 0o755),
				file(ours("semel.service"), "/usr/lib/systemd/system/semel.service", 0o644),
				file(filepath.Join(r.root, "LICENSE"), "/usr/share/doc/semel/copyright", 0o644),
				config,
			},
			Scripts: nfpm.Scripts{PostInstall: ours("deb/postinst"), PreRemove: ours("deb/prerm"), PostRemove: ours("deb/postrm")},
		},
	})
}
