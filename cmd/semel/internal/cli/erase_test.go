package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

// A person who is forgotten is in the log only as digests, and the log is still whole.
func TestAPurgeErasesAPersonInTheLog(t *testing.T) {
	t.Parallel()
	file, _, engine, _, end := evidentStore(t)
	for _, key := range []string{"order-1", "anna@example.com"} {
		ans, err := engine.Begin(t.Context(), command(key, "cmd-"+key, "p"))
		if err := errors.Join(err, ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("x")})); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Begin(t.Context(), command(key, "cmd-"+key, "p")); err != nil {
			t.Fatal(err)
		}
	}
	end()
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", append(args, "--config", file)...)
		if code != ExitOK {
			t.Fatalf("%s: exit %d, %s", args, code, errs)
		}
		return out
	}
	export := func() (person, other int) {
		out := run("evidence", "export")
		return strings.Count(out, "anna@example.com"), strings.Count(out, "order-1")
	}
	before, others := export()
	if before == 0 || others == 0 {
		t.Fatalf("the log names %d and %d times who is in it", before, others)
	}
	name := []string{"--tenant", "acme", "--principal", "alice", "--operation", "pay", "--key", "anna@example.com"}
	run(append([]string{"records", "purge", "--erase-evidence", "--reason", "anna@example.com has asked for it", "--yes"}, name...)...)
	if person, other := export(); person != 0 || other != others {
		t.Errorf("the log names the person %d times, and the other record %d times for %d", person, other, others)
	}
	run("store", "audit") // which fails if it finds something
	if code, _, _ := semelWith(t, "", append([]string{"records", "get", "--config", file}, name...)...); code == ExitOK {
		t.Error("the record is there")
	}
}
