package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
)

// evidenceDir is a directory with a store in which something happened.
func evidenceDir(t *testing.T) (dir, url string) {
	t.Helper()
	dir = t.TempDir()
	url = "pebble:" + filepath.Join(dir, "store")
	code, public, errs := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", filepath.Join(dir, "evidence.key"))
	if code != ExitOK || !strings.HasPrefix(public, "example.com/log+") {
		t.Fatalf("exit %d, %s%s", code, public, errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "evidence.pub"), []byte(public), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	st, err := service.OpenStore(ctx, config.Store{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "evidence.key"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := evidence.ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	log, err := evidence.New(st, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(st, &semel.Options{Witness: log, Operations: []semel.Operation{{Name: "pay", Evidence: semel.EvidenceDurable}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, payload := range []string{"a", "a", "b"} {
		for _, tenant := range []string{"acme", "other"} {
			_, err := engine.Do(ctx, semel.Call{
				Tenant: tenant, Principal: "alice", Operation: "pay", Key: "order-1", Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)),
				Attributes: store.Attributes{semel.AttributeCommandID: "cmd-1"},
			}, func(context.Context, semel.Execution) (semel.Result, error) {
				return semel.Result{Data: []byte("paid")}, nil
			})
			if (err != nil) != (i == 2) {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(log.Close(ctx), engine.Close(ctx), st.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, url
}

func TestEvidence(t *testing.T) {
	clause.Proves(t, "IDS-XII.1", "IDS-VIII.6")
	dir, store := evidenceDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	from := []string{"--store", store, "--keys", in("evidence.key")}
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", append([]string{"evidence"}, args...)...)
		if code != want {
			t.Fatalf("exit %d, %s%s", code, out, errs)
		}
		return out + errs
	}
	t.Run("a command's story is told in words", func(t *testing.T) {
		out := run(ExitOK, append(from, "show", "--tenant", "acme", "cmd-1")...)
		for _, want := range []string{"command cmd-1, operation pay, key order-1, tenant acme\n", "seen for the first time, and its execution began", "it was executed", "a duplicate got the outcome", "another payload was rejected"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
		var list []struct {
			N    uint64
			Leaf evidence.Artifact
		}
		if err := json.Unmarshal([]byte(run(ExitOK, append(from, "show", "--tenant", "acme", "--json", "cmd-1")...)), &list); err != nil || len(list) != 4 {
			t.Errorf("%v, %v", list, err)
		}
		run(ExitNotFound, append(from, "show", "--tenant", "acme", "cmd-2")...)
		run(ExitUsage, append(from, "show")...)
		run(ExitUsage, "show", "--store", store, "cmd-1")
	})
	t.Run("an export is verified with the public key", func(t *testing.T) {
		run(ExitOK, append(from, "export", "--out", in("log.jsonl"))...)
		out := run(ExitOK, "verify", "--keys", in("evidence.pub"), in("log.jsonl"))
		if !strings.Contains(out, "good  8 entries of example.com/log") || !strings.Contains(out, "give --checkpoints") {
			t.Error(out)
		}
		out = run(ExitOK, "verify", "--keys", in("evidence.pub"), "--checkpoints", in("evidence.key.signed"), in("log.jsonl"))
		if !strings.Contains(out, "1 kept checkpoints agree") || strings.Contains(out, "note:") {
			t.Error(out)
		}
		wantFields(t, run(ExitOK, "verify", "--keys", in("evidence.pub"), "--json", in("log.jsonl")),
			"valid", "origin", "view", "entries", "without_opening", "checkpoints", "kept_checkpoints", "size", "root")
		run(ExitCheck, append(from, "export", "--out", in("log.jsonl"))...)
	})
	t.Run("a change is named", func(t *testing.T) {
		text, err := os.ReadFile(in("log.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		bad := strings.Replace(string(text), `"executed":false`, `"executed":true`, 1)
		n := strings.Count(string(text)[:strings.Index(string(text), `"executed":false`)], "\n") - 1
		code, out, _ := semelWith(t, bad, "evidence", "verify", "--keys", in("evidence.pub"), "-")
		if code != ExitCheck || !strings.HasPrefix(out, fmt.Sprintf("BAD   entry %d: changed: ", n)) {
			t.Errorf("exit %d, %s", code, out)
		}
		if code, out, _ := semelWith(t, bad, "evidence", "verify", "--json", "--keys", in("evidence.pub"), "-"); code != ExitCheck || !strings.Contains(out, `"valid": false`) {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("a tenant gets its own entries", func(t *testing.T) {
		run(ExitOK, append(from, "export", "--tenant", "acme", "--out", in("acme.jsonl"))...)
		text, err := os.ReadFile(in("acme.jsonl"))
		if err != nil || strings.Contains(string(text), "other") || strings.Count(string(text), `"n":`) != 4 {
			t.Errorf("%s, %v", text, err)
		}
		if out := run(ExitOK, "verify", "--keys", in("evidence.pub"), in("acme.jsonl")); !strings.Contains(out, "good  4 entries") || !strings.Contains(out, "no other entries") {
			t.Error(out)
		}
	})
	t.Run("single entries are proved", func(t *testing.T) {
		code, out, errs := semelWith(t, "", append([]string{"evidence", "prove", "3", "5"}, from...)...)
		if code != ExitOK {
			t.Fatal(errs)
		}
		if code, out, _ := semelWith(t, out, "evidence", "verify", "--keys", in("evidence.pub"), "-"); code != ExitOK || !strings.Contains(out, "good  2 entries") {
			t.Errorf("exit %d, %s", code, out)
		}
		code, _, errs = semelWith(t, "", append([]string{"evidence", "prove", "8"}, from...)...)
		if code != ExitNotFound || !strings.Contains(errs, "entry 8: the newest checkpoint has ") || strings.Contains(errs, "records list") {
			t.Errorf("exit %d, %s", code, errs)
		}
		run(ExitUsage, append(from, "prove", "first")...)
	})
	t.Run("keys are rotated, and never written over", func(t *testing.T) {
		out := run(ExitOK, "keygen", "--rotate", in("evidence.key"), "--out", in("second.key"), "--json")
		wantFields(t, out, "origin", "file", "public_keys")
		run(ExitCheck, "keygen", "--origin", "example.com/log", "--out", in("evidence.key"))
		run(ExitUsage, "keygen", "--origin", "example.com/log")
		info, err := os.Stat(in("second.key"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info.Mode(), err)
		}
	})
}

func TestAPartOfAnExportIsNotLeft(t *testing.T) {
	dir, store := evidenceDir(t)
	if code, _, errs := semelWith(t, "", "evidence", "prove", "1", "--store", store, "--keys", filepath.Join(dir, "evidence.key")); code != ExitOK {
		t.Fatal(errs) // which signs a checkpoint
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	l, err := openLog(cmd, &config.Config{Store: config.Store{URL: store}}, "", false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out := filepath.Join(dir, "part.jsonl")
	if err := writeTo(cmd, l, out, client.EvidenceExport{Entries: []uint64{1 << 40}}); err == nil {
		t.Error("an entry that there is not was exported")
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}
