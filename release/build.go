package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// binary is the program for one platform.
type binary struct {
	platform
	file string
}

// name is that of the program in an archive or a package.
func (b binary) name() string {
	if b.os == "windows" {
		return "semel.exe"
	}
	return "semel"
}

// flags of the go command. Nothing in the program depends on where it was built: no paths, no
// state of a repository, no id of the build. The linker writes the version and the commit instead.
// grpcnotrace leaves out what would keep every exported method of every library, a quarter of
// the program.
func (r *release) flags() []string {
	const variables = "github.com/semelhq/semel/cmd/semel/internal/cli."
	version := "v" + r.version
	if r.modified {
		version += "-modified"
	}
	link := []string{"-s", "-w", "-buildid=", "-X", variables + "release=" + version, "-X", variables + "commit=" + r.commit, "-X", variables + "committed=" + r.time.Format(time.RFC3339)}
	return []string{"-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags", strings.Join(link, " ")}
}

// build builds the program into a directory, without cgo, so that it needs no library of a system.
func (r *release) build(p platform, dir string) (binary, error) {
	b := binary{platform: p}
	b.file = filepath.Join(dir, b.name())
	cmd := exec.Command("go", append(append([]string{"build"}, r.flags()...), "-o", b.file, "./cmd/semel")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOOS="+p.os, "GOARCH="+p.arch)
	start := time.Now()
	if _, err := output(cmd, r.root); err != nil {
		return b, err
	}
	info, err := os.Stat(b.file)
	if err != nil {
		return b, err
	}
	fmt.Printf("%s: built in %.0f s, %.1f MB\n", p, time.Since(start).Seconds(), float64(info.Size())/1e6)
	return b, nil
}

// entry is a file, or a directory, in an archive.
type entry struct {
	name string // a directory's ends with a slash
	file string // to copy, or else there is text
	text string
	mode fs.FileMode
	uid  int
}

func (e entry) open() (io.ReadCloser, int64, error) {
	if e.file == "" {
		return io.NopCloser(strings.NewReader(e.text)), int64(len(e.text)), nil
	}
	f, err := os.Open(e.file)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// archives writes an archive for each platform: a zip for Windows, which opens one without a tool.
func (r *release) archives(built []binary) error {
	for _, b := range built {
		dir := fmt.Sprintf("semel_%s_%s", r.version, b.platform)
		entries := []entry{
			{name: dir + "/" + b.name(), file: b.file, mode: 0o755},
			{name: dir + "/LICENSE", file: filepath.Join(r.root, "LICENSE"), mode: 0o644},
			{name: dir + "/README.md", file: filepath.Join(r.root, "README.md"), mode: 0o644},
			{name: dir + "/CHANGELOG.md", file: filepath.Join(r.root, "CHANGELOG.md"), mode: 0o644},
		}
		write, suffix := r.tarball, ".tar.gz"
		if b.os == "windows" {
			write, suffix = r.zip, ".zip"
		}
		if err := r.create(dir+suffix, func(w io.Writer) error { return write(w, entries) }); err != nil {
			return err
		}
	}
	return nil
}

// create writes an artefact.
func (r *release) create(name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

// tarball writes a compressed archive. Times are the commit's and owners are numbers, so it
// doesn't show which machine made it.
func (r *release) tarball(w io.Writer, entries []entry) error {
	z := gzip.NewWriter(w)
	if err := r.tar(z, entries); err != nil {
		return err
	}
	return z.Close()
}

func (r *release) tar(w io.Writer, entries []entry) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), ModTime: r.time, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, Uid: e.uid, Gid: e.uid}
		if e.mode&fs.ModeSticky != 0 {
			head.Mode |= 0o1000
		}
		if strings.HasSuffix(e.name, "/") {
			head.Typeflag = tar.TypeDir
			if err := t.WriteHeader(head); err != nil {
				return err
			}
			continue
		}
		if err := e.copy(func(size int64) (io.Writer, error) {
			head.Size = size
			return t, t.WriteHeader(head)
		}); err != nil {
			return err
		}
	}
	return t.Close()
}

func (r *release) zip(w io.Writer, entries []entry) error {
	z := zip.NewWriter(w)
	for _, e := range entries {
		head := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: r.time}
		head.SetMode(e.mode)
		if err := e.copy(func(int64) (io.Writer, error) { return z.CreateHeader(head) }); err != nil {
			return err
		}
	}
	return z.Close()
}

// copy writes the content to what begin returns for its size.
func (e entry) copy(begin func(size int64) (io.Writer, error)) error {
	content, size, err := e.open()
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	w, err := begin(size)
	if err == nil {
		_, err = io.Copy(w, content)
	}
	return err
}
