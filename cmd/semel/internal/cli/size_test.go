package cli

import (
	"os"
	"strings"
	"testing"
)

// TestSizeOfTheProgram: a binary is downloaded by everybody who tries it. What makes it
// grow by half at once is usually a template engine, or other code that finds methods by
// name: then the linker keeps all exported methods of all libraries.
func TestSizeOfTheProgram(t *testing.T) {
	t.Parallel()
	const largest = 42 // of which all pages of the documentation, with their pictures, are 1.1 and what shows them 0.6
	// The file that is measured is built as a release is.
	if releaser, err := os.ReadFile("../../../../.goreleaser.yaml"); err != nil || !strings.Contains(string(releaser), "-tags="+released[2]) {
		t.Errorf("a release isn't built with %q: %v", released, err)
	}
	info, err := os.Stat(program(t))
	if err != nil {
		t.Fatal(err)
	}
	if mb := float64(info.Size()) / 1e6; mb > largest {
		t.Errorf("the stripped program has %.1f MB, and may have %d", mb, largest)
	}
}
