package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServices runs scripts/services on its own lists. The program "sh" exists, because
// it runs the script.
func TestServices(t *testing.T) {
	const missing = "no-such-program some-package the store of this test\n"
	for _, test := range []struct {
		name, list, require, want string
		fails                     bool
	}{
		{name: "a list without programs needs none", list: "# none\n\n", require: "1", want: "services: the tests need none\n"},
		{name: "a program that is there is found", list: "sh dash shell\n", require: "1", want: "services: all 1 found\n"},
		{name: "so is a file", list: "/bin shell folder\n/no/such/file some-package the store of this test\n",
			want: "services: /no/such/file is missing (the store of this test): install the package some-package\n"},
		{name: "a missing one is named", list: missing + "sh dash shell\n",
			want: "services: no-such-program is missing (the store of this test): install the package some-package\n"},
		{name: "a missing one fails where services are required", list: missing, require: "1", fails: true,
			want: "services: no-such-program is missing (the store of this test): install the package some-package\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "services.list")
			if err := os.WriteFile(list, []byte(test.list), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "scripts/services", list)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "SEMEL_REQUIRE_SERVICES="+test.require)
			out, err := cmd.CombinedOutput()
			if string(out) != test.want || (err != nil) != test.fails {
				t.Fatalf("printed %q, error %v; want %q, failure %v", out, err, test.want, test.fails)
			}
		})
	}
}

// TestMakeHelp checks that every target of the Makefile explains itself.
func TestMakeHelp(t *testing.T) {
	help, err := output("make", "--no-print-directory")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(makefile)) {
		targets, ok := strings.CutPrefix(line, ".PHONY:")
		if !ok {
			continue
		}
		for target := range strings.FieldsSeq(targets) {
			if !strings.Contains(help, "  "+target+" ") {
				t.Errorf("make help does not explain %s", target)
			}
		}
	}
}
