package service_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// TestEvidence runs a service whose operation keeps evidence, and verifies what it leaves
// with the public key and the kept checkpoints.
func TestEvidence(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "charged") }))
	defer upstream.Close()
	dir := t.TempDir()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "evidence.key"), keys.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	store := "pebble:" + filepath.Join(dir, "store")
	s := start(t, write(t, fmt.Sprintf(`
api: "off"
store: {url: %q}
operations: [{name: charge, evidence: durable}]
routes: [{match: POST /charges, upstream: %q, operation: charge}]
evidence: {key_file: %q, checkpoint_dir: %q}
`, store, upstream.URL, filepath.Join(dir, "evidence.key"), filepath.Join(dir, "kept"))))
	for range 3 {
		if status, _, body := do(t, http.MethodPost, s.data("/charges"), `{}`, "Idempotency-Key", "one"); status != http.StatusOK || body != "charged" {
			t.Fatal(status, body)
		}
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	kept, err := os.ReadFile(filepath.Join(dir, "kept", "latest"))
	if err != nil {
		t.Fatal(err)
	}
	if last, err := os.ReadFile(filepath.Join(dir, "evidence.key.signed")); err != nil || !bytes.Equal(last, kept) {
		t.Errorf("beside the keys the node remembers %q, %v", last, err)
	}
	st, err := service.OpenStore(t.Context(), config.Store{URL: store})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var export bytes.Buffer
	r, err := evidence.NewReader(t.Context(), st)
	if err == nil {
		err = r.Export(context.Background(), &export, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	report, err := evidence.Verify(&export, keys.Trust(), &evidence.VerifyOptions{Kept: evidence.SplitCheckpoints(kept)})
	if err != nil || report.Finding != nil || report.Entries != 4 || report.Kept != 1 {
		t.Errorf("%+v, %v, %v", report, report.Finding, err)
	}
}
