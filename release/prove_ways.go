package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// installNPM installs the package semel from a registry that has nothing but ours, with a cache
// of its own, and lets npm find the program for this system.
func (r *release) installNPM(root string) (*exec.Cmd, error) {
	registry, err := r.registry()
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(registry)
	defer server.Close()
	cmd := exec.Command("npm", "install", "--prefix", root, "--cache", filepath.Join(root, ".cache"), "--registry", server.URL, "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "semel")
	if _, err := output(cmd, root); err != nil {
		return nil, err
	}
	return exec.Command(filepath.Join(root, "node_modules", ".bin", "semel")), nil
}

// registry serves what npm asks of a registry: a document for each package, and its file.
func (r *release) registry() (http.Handler, error) {
	files, err := filepath.Glob(filepath.Join(r.out, "npm", "*.tgz"))
	if err != nil {
		return nil, err
	}
	packages := map[string]func(host string) any{} // by path
	for _, file := range files {
		text, err := r.command("tar", "-xzOf", file, "package/package.json")
		if err != nil {
			return nil, err
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return nil, err
		}
		packages["/"+m["name"].(string)] = func(host string) any {
			m["dist"] = map[string]string{"tarball": "http://" + host + "/-/" + filepath.Base(file)}
			return map[string]any{"name": m["name"], "dist-tags": map[string]string{"latest": r.version}, "versions": map[string]any{r.version: m}}
		}
	}
	tarballs := http.StripPrefix("/-/", http.FileServer(http.Dir(filepath.Join(r.out, "npm"))))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// Not a ServeMux: npm asks for /@semelhq%2fsemel-linux-x64, and there that slash separates nothing.
		if document, ok := packages[req.URL.Path]; ok {
			_ = json.NewEncoder(w).Encode(document(req.Host))
			return
		}
		tarballs.ServeHTTP(w, req)
	}), nil
}

// installImage unpacks the image for this machine, and runs it as its configuration says.
func (r *release) installImage(root string) (*exec.Cmd, error) {
	dir, err := os.MkdirTemp("", "semel-layout-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	img, err := r.load(dir, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	content := mutate.Extract(img)
	defer func() { _ = content.Close() }()
	cmd := exec.Command("tar", "-x", "--same-owner", "-p", "-C", root)
	cmd.Stdin = content
	if _, err := output(cmd, root); err != nil {
		return nil, err
	}
	return isolated(root, config.Config.User, config.Config.Env, config.Config.Entrypoint[0], config.Config.Entrypoint[1:]...)
}

// load unpacks the file with the images into a directory, and opens the one for an architecture.
func (r *release) load(dir, arch string) (v1.Image, error) {
	if _, err := r.command("tar", "-xf", filepath.Join(r.out, "semel_"+r.version+"_image.tar"), "-C", dir); err != nil {
		return nil, err
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	return descend(outer, arch)
}

// descend finds the image for an architecture in the indexes of a layout.
func descend(index v1.ImageIndex, arch string) (v1.Image, error) {
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range list.Manifests {
		if d.MediaType.IsIndex() {
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			return descend(inner, arch)
		}
		if d.Platform != nil && d.Platform.Architecture == arch {
			return index.Image(d.Digest)
		}
	}
	return nil, fmt.Errorf("there is no image for %s", arch)
}

// installModule serves the commit as the version of a module, and lets go install build it as
// whoever has Go would. All other modules come from the cache of this machine, and so do their
// compiled packages.
func (r *release) installModule(root string) (*exec.Cmd, error) {
	cache, err := r.command("go", "env", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	v := module.Version{Path: "github.com/semelhq/semel", Version: "v" + r.version}
	proxy := filepath.Join(root, "proxy")
	if err := r.serve(v, filepath.Join(proxy, "github.com", "semelhq", "semel", "@v")); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "install", v.Path+"/cmd/semel@"+v.Version)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-trimpath -modcacherw", "GOSUMDB=off", "GOBIN="+filepath.Join(root, "bin"),
		"GOMODCACHE="+filepath.Join(root, "modules"), "GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"))
	if _, err := output(cmd, root); err != nil {
		return nil, err
	}
	return isolated(root, "1000:1000", nil, "/bin/semel")
}

// serve writes a version of the module into a directory, as a module proxy has it.
func (r *release) serve(v module.Version, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(r.root, "go.mod"))
	if err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, v.Version, r.time.Format("2006-01-02T15:04:05Z"))
	for name, text := range map[string][]byte{v.Version + ".mod": mod, v.Version + ".info": []byte(info), "list": []byte(v.Version + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	tree, err := os.MkdirTemp("", "semel-tree-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }()
	// Not zip.CreateFromVCS, which doesn't know a work tree beside its repository.
	if _, err := r.command("sh", "-euc", `git archive "$0" | tar -x -C "$1"`, r.commit, tree); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, v.Version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.CreateFromDir(f, v, tree); err != nil {
		return err
	}
	return f.Close()
}
