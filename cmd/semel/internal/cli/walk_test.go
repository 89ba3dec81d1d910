package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/stage"
)

// TestWalk runs the walk of the README as it is printed: each command by a shell,
// against a service that was started as the README says but on free ports. What is
// shown below a command is what it prints, where "..." stands for any text.
func TestWalk(t *testing.T) {
	exe := program(t)
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal("the walk needs curl")
		}
		t.Skip("the walk needs curl: install the package curl")
	}
	text, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- walk -->\n```sh\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatal("README.md has no walk")
	}
	service := exec.Command(exe, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "pebble:"+t.TempDir(), "--json")
	at, err := stage.Start(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Kill()
	place := strings.NewReplacer("http://127.0.0.1:8480", at.URL, "http://127.0.0.1:8481", at.AdminURL)
	dir := t.TempDir()
	commands := 0
	for _, part := range strings.Split("\n"+string(found[1]), "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		for strings.HasSuffix(command, "\\") { // it goes on in the next line
			var more string
			more, want, _ = strings.Cut(want, "\n")
			command += "\n" + more
		}
		commands++
		cmd := exec.CommandContext(t.Context(), "sh", "-c", place.Replace(command))
		cmd.Dir = dir
		got, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("$ %s\n%s%v", command, got, err)
		}
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(place.Replace(want))), `\.\.\.`, "(?s:.*)")
		if !regexp.MustCompile("^" + pattern + "$").Match([]byte(strings.TrimSpace(string(got)))) {
			t.Fatalf("$ %s\nprinted\n%s\nnot\n%s", command, got, want)
		}
	}
	if commands < 5 {
		t.Errorf("the walk has %d commands", commands)
	}
}
