package main

import (
	"encoding/json"
	"io"
	"path/filepath"
)

// nodeOS and nodeArch have Node's names for systems where they differ from Go's.
var (
	nodeOS   = map[string]string{"windows": "win32"}
	nodeArch = map[string]string{"amd64": "x64"}
)

// node returns what Node calls the platform.
func (p platform) node() (system, arch string) {
	system, arch = p.os, p.arch
	if name, ok := nodeOS[system]; ok {
		system = name
	}
	if name, ok := nodeArch[arch]; ok {
		arch = name
	}
	return system, arch
}

// manifest is a package.json. None of ours has scripts, which run at installation and which
// careful people switch off.
type manifest struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	Description          string            `json:"description"`
	License              string            `json:"license"`
	Homepage             string            `json:"homepage"`
	Repository           string            `json:"repository"`
	OS                   []string          `json:"os,omitempty"`
	CPU                  []string          `json:"cpu,omitempty"`
	Bin                  map[string]string `json:"bin,omitempty"`
	Engines              map[string]string `json:"engines,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
}

// npm writes the package semel, which starts the program, and one with the program for each
// platform, and npm installs the one that fits.
func (r *release) npm(built []binary) error {
	launcher := r.manifest("semel", "Exactly-once effects over at-least-once delivery")
	launcher.Bin = map[string]string{"semel": "bin/semel.js"}
	launcher.Engines = map[string]string{"node": ">=18"}
	launcher.OptionalDependencies = map[string]string{}
	for _, b := range built {
		system, arch := b.node()
		m := r.manifest("@semelhq/semel-"+system+"-"+arch, "The program of the package semel for "+system+" on "+arch)
		m.OS, m.CPU = []string{system}, []string{arch}
		launcher.OptionalDependencies[m.Name] = r.version
		if err := r.npmPackage("semelhq-semel-"+system+"-"+arch, m, entry{name: "package/bin/" + b.name(), file: b.file, mode: 0o755}); err != nil {
			return err
		}
	}
	from := func(name string) string { return filepath.Join(r.root, "release", "packaging", "npm", name) }
	return r.npmPackage("semel", launcher,
		entry{name: "package/bin/semel.js", file: from("semel.js"), mode: 0o755},
		entry{name: "package/README.md", file: from("README.md"), mode: 0o644})
}

func (r *release) manifest(name, description string) manifest {
	return manifest{Name: name, Version: r.version, Description: description, License: "Apache-2.0", Homepage: "https://github.com/semelhq/semel", Repository: "github:semelhq/semel"}
}

// npmPackage writes a package as npm pack does.
func (r *release) npmPackage(file string, m manifest, content ...entry) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	entries := append([]entry{
		{name: "package/package.json", text: string(text) + "\n", mode: 0o644},
		{name: "package/LICENSE", file: filepath.Join(r.root, "LICENSE"), mode: 0o644},
	}, content...)
	return r.create(filepath.Join("npm", file+"-"+r.version+".tgz"), func(w io.Writer) error { return r.tarball(w, entries) })
}
