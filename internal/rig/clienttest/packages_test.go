package clienttest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asInstalled makes a folder in which node finds the client for TypeScript as a package, which it
// may look into only where the package says so.
func asInstalled(t *testing.T) string {
	dir := t.TempDir()
	pkg := filepath.Join(dir, "node_modules", "@semelhq", "client")
	must(t, os.MkdirAll(pkg, 0o700))
	must(t, os.CopyFS(filepath.Join(pkg, "dist"), os.DirFS(built(t))))
	text, err := os.ReadFile(clients + "/typescript/package.json")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(pkg, "package.json"), text, 0o600))
	return dir
}

var block = regexp.MustCompile("(?s)\n```(?:ts|python)\n(.*?)\n```\n")

// TestPagesOfTheClients runs the programs of the clients' pages, twice.
func TestPagesOfTheClients(t *testing.T) {
	tools(t)
	w := newWorld(t)
	for _, by := range []struct {
		name, file string
		command    []string
	}{
		{"typescript", "program.mjs", []string{"node"}},
		{"python", "program.py", []string{"python3"}},
	} {
		t.Run(by.name, func(t *testing.T) {
			dir := t.TempDir()
			if by.name == "typescript" {
				dir = asInstalled(t)
			}
			path, err := filepath.Abs(clients + "/python")
			must(t, err)
			page, err := os.ReadFile(clients + "/" + by.name + "/README.md")
			must(t, err)
			var said []string
			for _, code := range block.FindAllSubmatch(page, -1) {
				// Two calls of the two pages must not be one.
				text := strings.NewReplacer("http://127.0.0.1:8480", w.target(), "order-42", by.name).Replace(string(code[1]))
				must(t, os.WriteFile(filepath.Join(dir, by.file), []byte(text), 0o600))
				for range 2 {
					cmd := exec.Command(by.command[0], by.file)
					cmd.Dir, cmd.Stderr = dir, os.Stderr
					cmd.Env = append(os.Environ(), "SEMEL_TOKEN=shop"+secret, "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
					out, err := cmd.Output()
					must(t, err)
					said = append(said, strings.TrimSpace(string(out)))
				}
			}
			if want := []string{"ch_1 now", "ch_1 again", "charged", "charged"}; !slices.Equal(said, want) {
				t.Errorf("they say %q", said)
			}
		})
	}
}

// TestPackages: both clients can be packed, with what they need and without a script that runs
// when somebody installs them.
func TestPackages(t *testing.T) {
	tools(t)
	t.Run("typescript", func(t *testing.T) {
		var pkg struct {
			Dependencies map[string]string
			Scripts      map[string]string
		}
		text, err := os.ReadFile(clients + "/typescript/package.json")
		must(t, err)
		must(t, json.Unmarshal(text, &pkg))
		for name := range pkg.Scripts {
			if strings.Contains(name, "install") || name == "prepare" {
				t.Errorf("it has a script %s", name)
			}
		}
		if len(pkg.Dependencies) > 0 {
			t.Errorf("it needs %v", pkg.Dependencies)
		}
		dir := filepath.Join(asInstalled(t), "node_modules", "@semelhq", "client")
		must(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("#"), 0o600))
		cmd := exec.Command("npm", "pack", "--dry-run", "--json", "--ignore-scripts", "--offline")
		cmd.Dir = dir
		out, err := cmd.Output()
		must(t, err)
		var packed []struct{ Files []struct{ Path string } }
		must(t, json.Unmarshal(out, &packed))
		var files []string
		for _, f := range packed[0].Files {
			files = append(files, f.Path)
		}
		for _, want := range []string{"package.json", "README.md", "dist/index.js", "dist/index.d.ts", "dist/files.js", "dist/browser.js"} {
			if !slices.Contains(files, want) {
				t.Errorf("%s is not in it: %v", want, files)
			}
		}
	})
	t.Run("python", func(t *testing.T) {
		if exec.Command("python3", "-c", "import setuptools").Run() != nil {
			t.Skip("there is no setuptools")
		}
		dir := t.TempDir()
		must(t, os.CopyFS(dir, os.DirFS(clients+"/python"))) // building leaves files there
		cmd := exec.Command("python3", "-c", "from setuptools import build_meta; build_meta.build_sdist('.')")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command("tar", "-tzf", filepath.Join(dir, "semel-0.1.0.tar.gz")).Output()
		must(t, err)
		files := strings.Fields(string(out))
		for _, want := range []string{"pyproject.toml", "README.md", "semel/client.py", "semel/types.py", "semel/py.typed"} {
			if !slices.Contains(files, "semel-0.1.0/"+want) {
				t.Errorf("%s is not in it: %v", want, files)
			}
		}
	})
}
