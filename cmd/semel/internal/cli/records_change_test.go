package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/archive"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestRecordsChange(t *testing.T) {
	t.Parallel()
	store := recordsDir(t)
	state := func(key string) string {
		t.Helper()
		code, out, _ := records(t, store, append([]string{"get", "--json"}, named(key)...)...)
		if code == ExitNotFound {
			return "none"
		}
		var rec recordLine
		if err := json.Unmarshal([]byte(out), &rec); err != nil {
			t.Fatal(err)
		}
		return standingOf(&rec)
	}
	change := func(verb, key string, more ...string) (int, string, string) {
		t.Helper()
		return records(t, store, slices.Concat([]string{verb}, named(key), []string{"--reason", "ticket 7"}, more)...)
	}
	settle := []string{"--outcome", "completed", "--result", "by hand"}
	for _, test := range []struct {
		name, verb, key string
		more            []string
		code            int
		says            string
	}{
		{"what is not held can't be settled", "settle", "done", append(settle, "--yes"), ExitConflict, "the record done is completed, not held"},
		{"nor be released", "release", "refused", []string{"--yes"}, ExitConflict, "not held"},
		{"an open effect forbids a release", "release", "open", []string{"--yes"}, ExitConflict, "effect ch=arge has no result"},
		{"what has not ended can't be purged", "purge", "held", []string{"--yes"}, ExitConflict, "the record held is held"},
		{"an effect that is not open can't be settled", "settle", "open", []string{"--effect", "mail=refuted", "--yes"}, ExitConflict, "effect mail is not open"},
		{"what is not there can't be purged", "purge", "none", []string{"--yes"}, ExitNotFound, "not_found"},
		{"nobody to ask", "purge", "done", nil, ExitUsage, "--yes"},
		{"no outcome", "settle", "held", []string{"--yes"}, ExitUsage, "--outcome or --effect"},
		{"an outcome that there is not", "settle", "held", []string{"--outcome", "abandoned", "--yes"}, ExitUsage, "not completed, rejected, failed or aborted"},
		{"a result of nothing", "settle", "held", []string{"--outcome", "aborted", "--result", "x", "--yes"}, ExitUsage, "--result needs"},
		{"a failure of what was completed", "settle", "held", []string{"--outcome", "completed", "--failure-code", "x", "--yes"}, ExitUsage, "--failure-code"},
		{"an effect without a finding", "settle", "open", []string{"--effect", "ch=arge", "--yes"}, ExitUsage, "not NAME=confirmed:JSON"},
		{"a result of what did not happen", "settle", "open", []string{"--effect", "ch=arge=refuted:1", "--yes"}, ExitUsage, "has no result"},
	} {
		t.Run(test.name+" is refused", func(t *testing.T) {
			before := state(test.key)
			code, out, errs := change(test.verb, test.key, test.more...)
			if code != test.code || out != "" || !strings.Contains(errs, test.says) {
				t.Errorf("exit %d, %s%s; want %d and %q", code, out, errs, test.code, test.says)
			}
			if after := state(test.key); after != before {
				t.Errorf("it was %s and is %s", before, after)
			}
		})
	}
	t.Run("a change without a reason is refused", func(t *testing.T) {
		for _, verb := range []string{"settle", "release", "purge"} {
			args := append([]string{verb, "--yes"}, named("done")...)
			if verb == "settle" {
				args = append(args, settle...)
			}
			if code, _, errs := records(t, store, args...); code != ExitUsage || !strings.Contains(errs, "--reason") {
				t.Errorf("%s: exit %d, %s", verb, code, errs)
			}
		}
	})
	t.Run("a dry run says what would happen, and changes nothing", func(t *testing.T) {
		code, out, errs := change("settle", "held", append(settle, "--dry-run")...)
		if code != ExitOK || out != "Nothing was changed: this was a dry run.\n" || !strings.Contains(errs, "duplicates get its result: 7 bytes: by hand") {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
		code, out, _ = change("purge", "done", "--dry-run", "--yes", "--json")
		wantFields(t, out, "action", "done", "reason", "before")
		if code != ExitOK || !strings.Contains(out, `"done": false`) || state("done") != "completed" || state("held") != "held" {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("where the operation is not known, nothing is settled unless it is forced", func(t *testing.T) {
		code, out, errs := change("settle", "held", append(settle, "--yes")...)
		if code != 1 || out != "" || !strings.Contains(errs, "operation charge is not registered here") || state("held") != "held" {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("a held record is settled, and kept for as long as its claim promised", func(t *testing.T) {
		code, out, errs := change("settle", "held", append(settle, "--yes", "--json", "--force")...)
		wantFields(t, out, "action", "done", "reason", "before", "after")
		var done changedRecord
		if err := json.Unmarshal([]byte(out), &done); err != nil {
			t.Fatal(err)
		}
		after := done.After
		if code != ExitOK || !done.Done || standingOf(after) != "completed" || *after.Bytes != base64.StdEncoding.EncodeToString([]byte("by hand")) || after.ExpiresAt.Sub(after.EndedAt) != semel.DefaultWindow {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("a settled effect lets it run again", func(t *testing.T) {
		if code, out, errs := change("settle", "open", "--effect", `ch=arge=confirmed:"ch_1"`, "--yes", "--force"); code != ExitOK || out != "The record is abandoned. Its next delivery runs again, and gets the results of confirmed effects instead of repeating them.\n" {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
		if _, out, _ := records(t, store, append([]string{"get"}, named("open")...)...); !strings.Contains(out, "ch=arge: confirmed") {
			t.Error(out)
		}
	})
	t.Run("a record is purged", func(t *testing.T) {
		if code, out, errs := change("purge", "done", "--yes", "--force"); code != ExitOK || out != "The record is purged.\n" || state("done") != "none" {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
}

// TestRecordsUseTheConfiguration: operations and the archive are those of the service.
func TestRecordsUseTheConfiguration(t *testing.T) {
	t.Parallel()
	store := recordsDir(t)
	shelf := filepath.Join(t.TempDir(), "shelf")
	file := filepath.Join(t.TempDir(), "semel.yaml")
	text := "store: {url: '" + store + "'}\narchive: {dir: '" + shelf + "'}\noperations:\n  - {name: charge, window: 48h, archive: true}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(named("held"), "--config", file, "--reason", "ticket 7", "--yes", "--json")
	code, out, errs := semelWith(t, "", append([]string{"records", "settle", "--outcome", "aborted"}, args...)...)
	var done changedRecord
	if err := json.Unmarshal([]byte(out), &done); err != nil {
		t.Fatalf("exit %d, %s%s", code, out, errs)
	}
	if after := done.After; after.ExpiresAt.Sub(after.EndedAt) != semel.DefaultWindow || errs != "" {
		t.Errorf("it is kept for %v; %s", after.ExpiresAt.Sub(after.EndedAt), errs)
	}
	if code, out, errs = semelWith(t, "", append([]string{"records", "purge"}, args...)...); code != ExitOK {
		t.Fatalf("exit %d, %s%s", code, out, errs)
	}
	var kept []string
	err := archive.Read(shelf, func(rec semel.Record) error { kept = append(kept, rec.ID.Key); return nil })
	if err != nil || !slices.Equal(kept, []string{"held"}) {
		t.Errorf("the archive has %q, %v", kept, err)
	}
}

// inProcess runs a command on an engine in memory, as on a service, with a person
// at the terminal.
func inProcess(t *testing.T, ctx context.Context, e client.Records, stdin io.Reader, out io.Writer, args ...string) (stderr string, err error) {
	t.Helper()
	from := &recordsFrom{
		open: func(*cobra.Command, *recordSource) (client.Records, io.Closer, error) {
			return e, io.NopCloser(nil), nil
		},
		terminal: func(any) bool { return true },
	}
	cmd := newRecords(from)
	var errs bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(ctx)
	return errs.String(), err
}

func inMemory(t *testing.T) *semel.Engine {
	t.Helper()
	s := memstore.New()
	e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "charge"}, {Name: "mail"}, {Name: "pay", Confirmation: &semel.ConfirmationPolicy{}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.Close(context.WithoutCancel(t.Context()))
		_ = s.Close()
	})
	return e
}

func TestRecordsAsk(t *testing.T) {
	e := inMemory(t)
	populate(t, e)
	args := append([]string{"release", "--reason", "ticket 7"}, named("held")...)
	held := semel.ID{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "held"}
	for _, answer := range []string{"", "no\n", "y\n", "YES\n"} {
		errs, err := inProcess(t, t.Context(), e, strings.NewReader(answer), io.Discard, args...)
		if !errors.Is(err, errReported) || !strings.Contains(errs, "may happen twice") || !strings.HasSuffix(errs, "Go on? Type yes: Nothing was changed.\n") {
			t.Errorf("after %q: %v, %s", answer, err, errs)
		}
		if rec, err := e.Lookup(t.Context(), held); err != nil || !rec.Held {
			t.Fatalf("after %q it is %+v, %v", answer, rec, err)
		}
	}
	var out bytes.Buffer
	if errs, err := inProcess(t, t.Context(), e, strings.NewReader("yes\n"), &out, args...); err != nil || out.String() != "The record is abandoned. Its next delivery runs again.\n" {
		t.Errorf("%v, %s%s", err, &out, errs)
	}
}

// TestRecordsConfirm: a call that waits for a person's yes runs after the command, once.
func TestRecordsConfirm(t *testing.T) {
	clause.Proves(t, "IDS-X.2")
	e := inMemory(t)
	call := semel.Call{Tenant: "acme", Principal: "shop", Operation: "pay", Key: "k"}
	if _, err := e.Begin(t.Context(), call); !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}) {
		t.Fatal(err)
	}
	run := func(command string, more ...string) (string, error) {
		var out bytes.Buffer
		errs, err := inProcess(t, t.Context(), e, strings.NewReader(""), &out, append([]string{command, call.ID("").Encode()}, more...)...)
		return out.String() + errs, err
	}
	if said, err := run("confirm", "--reason", "she called", "--dry-run"); err != nil || !strings.Contains(said, "confirm: the call runs once") || !strings.Contains(said, "Nothing was changed") {
		t.Errorf("%v, %s", err, said)
	}
	if _, err := run("confirm", "--yes"); !strings.Contains(err.Error(), "--reason") {
		t.Error(err)
	}
	if said, err := run("confirm", "--reason", "she called", "--yes"); err != nil || !strings.HasPrefix(said, "The call is confirmed. It runs once, when its caller sends it again until ") {
		t.Errorf("%v, %s", err, said)
	}
	if said, err := run("get"); err != nil || !strings.Contains(said, "confirmed by "+localName()+": she called") {
		t.Errorf("%v, %s", err, said)
	}
	if said, err := run("confirm", "--reason", "again", "--yes"); !errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) || !strings.Contains(err.Error(), "it is confirmed") {
		t.Errorf("%v, %s", err, said)
	}
	ans, err := e.Begin(t.Context(), call)
	if err != nil || ans.Decision != semel.Execute {
		t.Fatal(ans, err)
	}
	if err := ans.Attempt.Complete(t.Context(), semel.Result{}); err != nil {
		t.Fatal(err)
	}
	if said, err := run("get"); err != nil || !strings.Contains(said, "attempt 1, fence") || !strings.Contains(said, "she called") {
		t.Errorf("%v, %s", err, said)
	}
}

// standingOf is stateOf of a record in JSON.
func standingOf(line *recordLine) string {
	switch {
	case line.Held:
		return "held"
	case line.Status == semel.Failed:
		return line.Disposition.String()
	}
	return line.Status.String()
}

// logName is what logs call a record.
func logName(t *testing.T, name string) string {
	t.Helper()
	id, err := store.DecodeID(name)
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}
