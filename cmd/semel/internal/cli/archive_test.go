package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/archive"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// TestArchive reads and verifies what a purge has written, until a byte of it is another one.
func TestArchive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "archive")
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	var recs []semel.Record
	for _, key := range []string{"order-1", "order-2"} {
		call := semel.Call{Operation: "pay", Key: key}
		if _, err := engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil }); err != nil {
			t.Fatal(err)
		}
		page, err := engine.Search(t.Context(), store.Query{Key: key})
		if err != nil || len(page.Records) != 1 {
			t.Fatal(page, err)
		}
		recs = append(recs, page.Records...)
	}
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if code, out, errs := semelWith(t, "", "archive", "verify", dir); code != ExitOK || errs != "" || !strings.HasPrefix(out, "empty  ") {
		t.Errorf("a new archive: exit %d, %s%s", code, out, errs)
	}
	for i := range recs {
		if err := a.Write(t.Context(), recs[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := semelWith(t, "", "archive", "verify", dir)
	if code != ExitOK || errs != "" || !strings.HasPrefix(out, "good  ") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	code, out, errs = semelWith(t, "", "archive", "read", dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != ExitOK || errs != "" || len(lines) != 2 || !strings.Contains(lines[0], `"order-1"`) || !strings.Contains(lines[1], `"order-2"`) {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, out, _ = semelWith(t, "", "archive", "read", dir, "key:order-2", "state:completed"); code != ExitOK || out != lines[1]+"\n" {
		t.Errorf("exit %d, %s", code, out)
	}
	for args, want := range map[string]string{"archive verify": "which archive?", "archive read none": "no directory none", "archive verify " + dir + " more": "unexpected", "archive read " + dir + " stat:x": "did you mean state"} {
		if code, _, errs := semelWith(t, "", strings.Fields(args)...); code != ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.zst"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	manifest := filepath.Join(dir, "manifest.ndjson")
	if err := os.Rename(manifest, manifest+".away"); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"verify", "read"} {
		for where, want := range map[string]string{dir: filepath.Base(files[0]) + ": it is not in the manifest", t.TempDir(): "it isn't an archive: it has no manifest.ndjson"} {
			if code, out, errs := semelWith(t, "", "archive", command, where); code != ExitCheck || out != "" || !strings.Contains(errs, want) {
				t.Errorf("%s without a manifest: exit %d, %s%s", command, code, out, errs)
			}
		}
	}
	if err := os.Rename(manifest+".away", manifest); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	write(t, files[1], string(append(bytes.Clone(text[:len(text)-1]), ^text[len(text)-1])))
	code, _, errs = semelWith(t, "", "archive", "verify", dir)
	if code != ExitCheck || !strings.Contains(errs, filepath.Base(files[1])) {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, out, errs = semelWith(t, "", "archive", "read", dir); code != ExitCheck || out != lines[0]+"\n" || !strings.Contains(errs, "another digest") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
}
