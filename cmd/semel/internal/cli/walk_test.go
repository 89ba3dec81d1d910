package cli

import (
	"os"
	"os/exec"
	"testing"

	"github.com/semelhq/semel/internal/rig/stage"
)

// TestWalk runs the page of the execution API against a service that was started as the page
// says, but on free ports.
func TestWalk(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal("the walk needs curl")
		}
		t.Skip("the walk needs curl: install the package curl")
	}
	service := exec.Command(program(t), "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "pebble:"+t.TempDir(), "--json")
	at, err := stage.Start(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Kill()
	newPage(t, "http://127.0.0.1:8480", at.URL, "http://127.0.0.1:8481", at.AdminURL).walks("docs/execution-api.md", "")
}
