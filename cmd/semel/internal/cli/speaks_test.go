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
		{[]string{"why", "x", "--token-file", token}, ExitNotFound, "semel: no call has the name x. Check the spelling, or look through 'semel records list'; if there is an evidence log, 'semel evidence show' knows the ids of old duplicates\n"},
		{[]string{"completion", "tcsh"}, ExitUsage, "Run 'semel completion --help' for usage.\n"},
		{[]string{"evidence", "verify", "--keys", "none.pub"}, ExitUsage, "--keys: open none.pub: "},
		{[]string{"docs", "nosuchword"}, ExitNotFound, "has nosuchword; 'semel docs' lists all\n"},
		{[]string{"store", "status", "--store", "pebble:none"}, ExitCheck, "there is no store in none: name it with --store pebble:DIR\n"},
		{[]string{"why", "x", "--url", admin + "/v1"}, ExitUnavailable, "logs its address, which has no path, as admin\n"},
		{[]string{"why", "x", "--url", "ftp://h"}, ExitUsage, "--url: the address is not an http or https URL such as https://semel.internal:8481\n"},
		{[]string{"messages", "show", "msg_none", "--token-file", token}, ExitNotFound, "semel: no message has the id msg_none\n"},
		{[]string{"why", "x", "--token-file", filepath.Join(dir, "none")}, ExitUsage, "semel: --token-file " + filepath.Join(dir, "none") + ": no such file or directory\nCheck the name; "},
		{[]string{"why", "x"}, ExitCheck, "Give your token in a file with --token-file, or in the variable SEMEL_TOKEN; a context can name the file.\n"},
	} {
		code, _, errs := semelWith(t, "", test.args...)
		errs = strings.Replace(errs, "Check the spelling, or look through 'semel records list' and 'semel messages list'.\n", "(look)\n", 1)
		if strings.Contains(errs, "(look)") != (test.args[0] == "messages") {
			t.Errorf("%q is sent to the records: %s", test.args, errs)
		}
		if code != test.code || !strings.Contains(errs, test.says) || strings.Contains(errs, "not_found") {
			t.Errorf("%q: exit %d, %s", test.args, code, errs)
		}
	}
	t.Setenv("SEMEL_URL", "127.0.0.1:1")
	if code, _, errs := semelWith(t, "", "why", "x"); code != ExitUsage || !strings.HasPrefix(errs, "semel: SEMEL_URL: the address is not ") {
		t.Errorf("exit %d, %s", code, errs)
	}
	t.Setenv("SEMEL_URL", admin)
	for _, command := range []string{"why", "records get", "evidence show", "records settle --outcome completed --reason r --yes"} {
		code, _, errs := semelWith(t, "", append(strings.Fields(command), "")...)
		if code != ExitUsage || !strings.HasPrefix(errs, "semel: which ") {
			t.Errorf("%s of an empty name: exit %d, %s", command, code, errs)
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
