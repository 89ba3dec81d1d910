package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/semelhq/semel/internal/service/auth"
)

// A flag that can't have a value says so in words, and not in those of Go's packages.
func TestFlagsSpeakToPeople(t *testing.T) {
	for _, cmd := range leaves(newRoot()) {
		refused := func(f *pflag.Flag) {
			if f.Value.Type() == "string" || strings.HasPrefix(f.Value.Type(), "string") {
				return
			}
			args := append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+"=x!")
			code, _, errs := semelWith(t, "", args...)
			if code != ExitUsage || !strings.HasPrefix(errs, "semel: --"+f.Name+": ") || strings.Contains(errs, "strconv") || strings.Contains(errs, "invalid") || strings.Contains(errs, "parsing") {
				t.Errorf("%q: exit %d, %s", args, code, errs)
			}
		}
		cmd.LocalFlags().VisitAll(refused)
	}
}

// What can't be found says where it was looked for, where nobody has said it, and a token that
// is missing how it's given.
func TestWhereItLooked(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("semel_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, admin := serving(t, "auth: {tokens: [{name: ada, roles: [admin], sha256: "+auth.HashToken("semel_secret")+"}]}\n"+payOperation)
	t.Setenv("SEMEL_URL", admin)
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"why", "x", "--token-file", token}, ExitNotFound, "semel: no call has the name x; if it is the id of an old duplicate, 'semel evidence show' knows it\n"},
		{[]string{"messages", "show", "msg_none", "--token-file", token}, ExitNotFound, "semel: no message has the id msg_none\n"},
		{[]string{"why", "x", "--token-file", filepath.Join(dir, "none")}, ExitUsage, "semel: --token-file " + filepath.Join(dir, "none") + ": no such file or directory\nCheck the name; "},
		{[]string{"why", "x"}, ExitCheck, "Give your token in a file with --token-file, or in the variable SEMEL_TOKEN; a context can name the file.\n"},
	} {
		code, _, errs := semelWith(t, "", test.args...)
		if code != test.code || !strings.Contains(errs, test.says) || strings.Contains(errs, "not_found") {
			t.Errorf("%q: exit %d, %s", test.args, code, errs)
		}
	}
	t.Setenv("SEMEL_TOKEN", "semel_secret")
	if code, _, errs := semelWith(t, "", "why", "x"); code != ExitNotFound || !strings.Contains(errs, ". Looked for at "+admin+"; --url, ") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, _, errs := semelWith(t, "", "healthcheck", "--url", "http://127.0.0.1:1"); code != ExitCheck || strings.Contains(errs, "Get ") || !strings.Contains(errs, "no service answers at http://127.0.0.1:1") || !strings.Contains(errs, "--url") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
