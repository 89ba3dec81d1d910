package main

import (
	"archive/zip"
	"debug/buildinfo"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// checkContents checks the artefacts for the systems that this machine can't run: each has a
// program that says it was built for its system, from this version.
func (r *release) checkContents(w io.Writer) error {
	if _, err := output(exec.Command("sha256sum", "--check", "--quiet", sumsFile), r.out); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "semel-contents-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i, p := range r.platforms {
		b := binary{platform: p}
		system, arch := p.node()
		for j, from := range []struct{ file, inside string }{
			{fmt.Sprintf("semel_%s_%s", r.version, p), fmt.Sprintf("semel_%s_%s/%s", r.version, p, b.name())},
			{fmt.Sprintf("npm/semelhq-semel-%s-%s-%s", system, arch, r.version), "package/bin/" + b.name()},
		} {
			to := filepath.Join(dir, fmt.Sprint(i, j))
			if err := r.extract(from.file, from.inside, to); err != nil {
				return err
			}
			if err := builtFor(to, p); err != nil {
				return fmt.Errorf("%s: %w", from.file, err)
			}
		}
	}
	names, err := r.artefacts()
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%8.1f MB  %s\n", float64(info.Size())/1e6, name)
	}
	return nil
}

// extract writes one file of an archive.
func (r *release) extract(archive, inside, to string) error {
	file := filepath.Join(r.out, archive)
	if strings.HasSuffix(inside, ".exe") && !strings.HasPrefix(archive, "npm/") {
		z, err := zip.OpenReader(file + ".zip")
		if err != nil {
			return err
		}
		defer func() { _ = z.Close() }()
		text, err := fs.ReadFile(z, inside)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	}
	suffix := ".tar.gz"
	if strings.HasPrefix(archive, "npm/") {
		suffix = ".tgz"
	}
	_, err := r.command("tar", "-xzf", file+suffix, "-C", filepath.Dir(to), "--transform", "s:.*:"+filepath.Base(to)+":", inside)
	return err
}

// builtFor checks what a program says of its build.
func builtFor(file string, p platform) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	want := map[string]string{"GOOS": p.os, "GOARCH": p.arch, "CGO_ENABLED": "0", "-trimpath": "true", "-tags": "grpcnotrace"}
	for _, s := range info.Settings {
		if w, ok := want[s.Key]; ok && w != s.Value {
			return fmt.Errorf("%s is %s, want %s", s.Key, s.Value, w)
		}
		delete(want, s.Key)
	}
	if len(want) > 0 {
		return fmt.Errorf("the program doesn't say %v", want)
	}
	return nil
}
