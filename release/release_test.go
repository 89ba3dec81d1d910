package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// made has what make release makes, for this platform, signed by a key of the test. It is made
// once for all tests.
var made = sync.OnceValues(func() (*release, error) {
	dir, err := os.MkdirTemp("", "semel-release-test-")
	if err != nil {
		return nil, err
	}
	r := &release{root: "..", out: filepath.Join(dir, "dist"), key: filepath.Join(dir, "key"), platforms: []platform{here()}}
	if err := r.read(); err != nil {
		return nil, err
	}
	if _, err := r.command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", r.key); err != nil {
		return nil, err
	}
	return r, r.make()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if r, _ := made(); r != nil {
		_ = os.RemoveAll(filepath.Dir(r.out))
	}
	os.Exit(code)
}

func artefacts(t *testing.T) *release {
	t.Helper()
	r, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// program is the one in the archive.
func program(t *testing.T) string {
	t.Helper()
	r := artefacts(t)
	name := "semel_" + r.version + "_" + here().String()
	to := filepath.Join(t.TempDir(), "semel")
	if err := r.extract(name, name+"/semel", to); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestTwoBuildsAreEqual builds again, from a copy of the tree in another directory.
func TestTwoBuildsAreEqual(t *testing.T) {
	r := artefacts(t)
	again := *r
	again.root, again.out = filepath.Join(t.TempDir(), "another", "place"), filepath.Join(t.TempDir(), "dist")
	copyTree(t, r.root, again.root)
	if err := again.make(); err != nil {
		t.Fatal(err)
	}
	one := must(os.ReadFile(filepath.Join(r.out, sumsFile)))(t)
	two := must(os.ReadFile(filepath.Join(again.out, sumsFile)))(t)
	if string(one) != string(two) {
		t.Errorf("the first build:\n%s\nthe second:\n%s", one, two)
	}
	// A program that shows where it was built would differ between machines.
	if text := must(os.ReadFile(program(t)))(t); strings.Contains(string(text), r.root+"/") {
		t.Errorf("the program contains %s", r.root)
	}
}

// copyTree copies what is or would be committed.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	files := must(output(exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), from))(t)
	for name := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			continue // deleted, but not committed yet
		}
		info := must(os.Stat(filepath.Join(from, name)))(t)
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// verification has the commands of docs/install.md.
var verification = regexp.MustCompile("<!-- norun: verify[^\n]*-->\n```sh\n((?s).*?)```")

// TestVerification runs the commands that the page gives, over files as they are, with a changed
// file, and with changed checksums.
func TestVerification(t *testing.T) {
	r := artefacts(t)
	page := must(os.ReadFile(filepath.Join(r.root, "docs", "install.md")))(t)
	m := verification.FindSubmatch(page)
	if m == nil {
		t.Fatal("docs/install.md doesn't say how a release is verified")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(r.out)); err != nil {
		t.Fatal(err)
	}
	key := must(os.ReadFile(r.key + ".pub"))(t)
	signers := filepath.Join(dir, "allowed_signers")
	if err := os.WriteFile(signers, append([]byte(`semel-release namespaces="semel-release" `), key...), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func() (string, error) { return output(exec.Command("sh", "-euc", string(m[1])), dir) }
	out := must(verify())(t)
	for _, name := range must(r.artefacts())(t) {
		if want := name + ": OK"; !strings.HasPrefix(name, sumsFile) && !strings.Contains(out, want) {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
	appendTo := func(name string) {
		f := must(os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0))(t)
		must(f.WriteString("\n"))(t)
		must(0, f.Close())(t)
	}
	appendTo("compose.yaml")
	if out, err := verify(); err == nil || !strings.Contains(err.Error(), "compose.yaml: FAILED") {
		t.Errorf("a changed file passes: %s, %v", out, err)
	}
	appendTo(sumsFile)
	if out, err := verify(); err == nil || strings.Contains(err.Error(), "compose.yaml") {
		t.Errorf("changed checksums are read: %s, %v", out, err)
	}
}

// TestStatements reads what stands beside the programs: it names each file, and the modules in
// each program.
func TestStatements(t *testing.T) {
	r := artefacts(t)
	var bom struct {
		SpecVersion string
		Components  []struct{ Name string }
	}
	text := must(os.ReadFile(filepath.Join(r.out, "semel_"+r.version+"_"+here().String()+".cdx.json")))(t)
	must(0, json.Unmarshal(text, &bom))(t)
	var names []string
	for _, c := range bom.Components {
		names = append(names, c.Name)
	}
	if !slices.Contains(names, "std") || !slices.Contains(names, "github.com/cockroachdb/pebble/v2") || bom.SpecVersion == "" {
		t.Errorf("modules %v", names)
	}
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	must(0, json.Unmarshal(must(os.ReadFile(filepath.Join(r.out, provenanceFile)))(t), &statement))(t)
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("a statement of type %s about %s", statement.Type, statement.PredicateType)
	}
	if d := statement.Predicate.BuildDefinition.ResolvedDependencies; len(d) != 1 || d[0].Digest["gitCommit"] != r.commit {
		t.Errorf("made from %v, want %s", d, r.commit)
	}
	sums := string(must(os.ReadFile(filepath.Join(r.out, sumsFile)))(t))
	for _, s := range statement.Subject {
		if !strings.Contains(sums, s.Digest["sha256"]+"  "+s.Name+"\n") {
			t.Errorf("the checksums lack %s as the statement has it", s.Name)
		}
	}
	if want := strings.Count(sums, "\n") - 1; len(statement.Subject) != want {
		t.Errorf("the statement is about %d files, want %d", len(statement.Subject), want)
	}
}

// TestVersion: the program says what was built.
func TestVersion(t *testing.T) {
	r := artefacts(t)
	out := must(output(exec.Command(program(t), "version"), t.TempDir()))(t)
	if !strings.HasPrefix(out, "semel v"+r.version) || !strings.Contains(out, "("+r.commit[:12]+", "+r.time.Format("2006-01-02T15:04:05Z")+")") {
		t.Errorf("%s, want version %s of %s", out, r.version, r.commit)
	}
	page := must(os.ReadFile("../docs/install.md"))(t)
	if forms := out[strings.LastIndex(out, "\n"):]; !strings.Contains(string(page), forms+"\n") {
		t.Errorf("docs/install.md lacks%s", forms)
	}
	if modified := strings.Contains(out, "-modified"); modified != r.modified {
		t.Errorf("%s, and the tree is modified: %v", out, r.modified)
	}
}

// TestEverySystemIsExplained: docs/install.md says what the program lacks on a system, and nothing
// else.
func TestEverySystemIsExplained(t *testing.T) {
	page := string(must(os.ReadFile("../docs/install.md"))(t))
	rows := regexp.MustCompile(`(?m)^\| (macOS, Windows|Windows) \| (.*) \|$`).FindAllStringSubmatch(page, -1)
	told := map[string][]string{}
	for _, row := range rows {
		for system := range strings.SplitSeq(row[1], ", ") {
			told[system] = append(told[system], row[2])
		}
	}
	for system, name := range map[string]string{"linux": "Linux", "darwin": "macOS", "windows": "Windows"} {
		if !slices.Equal(lacks(system), told[name]) {
			t.Errorf("%s lacks %q, and the page says %q", name, lacks(system), told[name])
		}
	}
}

// TestNpmPackages: no package runs a script, and the launcher names one package for each platform.
func TestNpmPackages(t *testing.T) {
	r := artefacts(t)
	for _, file := range must(fs.Glob(os.DirFS(r.out), "npm/*.tgz"))(t) {
		text := must(r.command("tar", "-xzOf", filepath.Join(r.out, file), "package/package.json"))(t)
		var m struct {
			manifest
			Scripts map[string]string
		}
		must(0, json.Unmarshal([]byte(text), &m))(t)
		if m.Scripts != nil {
			t.Errorf("%s has scripts", file)
		}
		system, arch := here().node()
		name := "@semelhq/semel-" + system + "-" + arch
		switch {
		case m.Name == "semel" && m.OptionalDependencies[name] != r.version,
			m.Name == name && (!slices.Equal(m.OS, []string{system}) || !slices.Equal(m.CPU, []string{arch})),
			m.Name != "semel" && m.Name != name:
			t.Errorf("%s: %s", file, text)
		}
	}
}

// TestOneWayIn installs one artefact into an empty root and runs the demo there; make
// prove-install does so with each.
func TestOneWayIn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a program a root directory of its own")
	}
	installed, first, err := artefacts(t).try(ways[3])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: installed after %s, first effect after %s", ways[3].name, installed, first)
}
