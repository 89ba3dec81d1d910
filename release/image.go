package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody runs the program in the image: a number, so that Kubernetes sees that it isn't root.
const nobody = 65532

// image writes an image for all architectures of Linux as a layout of the Open Container
// Initiative in one file, which skopeo, crane, podman and docker load.
func (r *release) image(built []binary) error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range built {
		if b.os != "linux" {
			continue
		}
		img, err := r.imageOf(b)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: b.os, Architecture: b.arch},
		}})
	}
	dir, err := os.MkdirTemp("", "semel-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
	}
	if err != nil {
		return err
	}
	entries, err := entriesBelow(dir)
	if err != nil {
		return err
	}
	return r.create("semel_"+r.version+"_image.tar", func(w io.Writer) error { return r.tar(w, entries) })
}

// entriesBelow returns the files of a directory, in the order of their names.
func entriesBelow(dir string) (entries []entry, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		entries = append(entries, entry{name: filepath.ToSlash(name), file: path, mode: 0o644})
		return err
	})
	return entries, err
}

// imageOf is the image for one architecture: the program, the certificates of public authorities,
// and a directory for the store. There is no shell.
func (r *release) imageOf(b binary) (v1.Image, error) {
	entries := []entry{
		{name: "etc/", mode: 0o755}, {name: "etc/ssl/", mode: 0o755}, {name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", text: authorities(), mode: 0o644},
		{name: "etc/passwd", text: "root:x:0:0::/:/sbin/nologin\nsemel:x:65532:65532::/var/lib/semel:/sbin/nologin\n", mode: 0o644},
		{name: "etc/group", text: "root:x:0:\nsemel:x:65532:\n", mode: 0o644},
		{name: "tmp/", mode: 0o777 | fs.ModeSticky},
		{name: "usr/", mode: 0o755}, {name: "usr/bin/", mode: 0o755}, {name: "usr/bin/semel", file: b.file, mode: 0o755},
		{name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755}, {name: "var/lib/semel/", mode: 0o700, uid: nobody},
	}
	var content bytes.Buffer
	if err := r.tar(&content, entries); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "release"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, r.imageConfig(img, b))
}

// imageConfig is how the image runs: the execution API for programs that share its network, until
// a configuration says more.
func (r *release) imageConfig(img v1.Image, b binary) *v1.ConfigFile {
	config, _ := img.ConfigFile() // of an image that was just put together
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/var/lib/semel", Entrypoint: []string{"/usr/bin/semel"}, Cmd: []string{"serve"},
		Env: []string{"PATH=/usr/bin", "SEMEL_STORE_URL=pebble:/var/lib/semel/store"}, StopSignal: "SIGTERM",
		ExposedPorts: map[string]struct{}{"8480/tcp": {}, "8481/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/semel": {}},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/semel", "healthcheck", "--url", "http://127.0.0.1:8481"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 10 * time.Second, Retries: 3},
		Labels: map[string]string{
			"org.opencontainers.image.title": "semel", "org.opencontainers.image.description": "Exactly-once effects over at-least-once delivery",
			"org.opencontainers.image.source": "https://github.com/semelhq/semel", "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit, "org.opencontainers.image.created": r.time.Format(time.RFC3339),
		},
	}
	return config
}

// authorities are the certificates that the Go project keeps, without those that browsers trust
// under a condition, which a list can't say.
func authorities() string {
	var text strings.Builder
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return text.String()
}
