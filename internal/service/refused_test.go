package service_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/auth"
)

// Strangers can send as many wrong credentials as they like. The log says why each was
// refused, and none of them is an error of the service.
func TestARefusedCredentialIsNoError(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the upstream is asked") }))
	defer up.Close()
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
auth: {tokens: [{name: root, roles: [admin], sha256: %s}]}
operations: [{name: pay}]
routes: [{match: POST /pay, upstream: %q, operation: pay}]
`, auth.HashToken(rootToken), up.URL)))
	wrong := []string{"Authorization", "Bearer a secret of somebody else", "Idempotency-Key", "one"}
	for _, r := range []struct {
		method, url string
		header      []string
	}{
		{"POST", s.data("/pay"), wrong},
		{"POST", s.data("/pay"), wrong[2:]},
		{"POST", s.data("/v1/operations/default/executions"), wrong},
		{"GET", s.admin("/v1/records"), wrong},
	} {
		if status, _, text := do(t, r.method, r.url, "{}", r.header...); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", r.url, status, text)
		}
	}
	log := s.log.String()
	if strings.Contains(log, "level=ERROR") || strings.Contains(log, "somebody else") {
		t.Error(log)
	}
	for _, reason := range []string{"bad credential: the bearer token is unknown", "the request has no credential"} {
		line := regexp.MustCompile(`level=INFO msg=delivery door=http operation=pay .*code=unidentified .*error="` + reason + `"\n`)
		if found := line.FindAllString(log, -1); len(found) != 1 {
			t.Errorf("%d lines %s:\n%s", len(found), line, log)
		}
	}
}

// A log that can't be signed stops no call, so the node is ready, but nothing calls it well.
func TestAFaultOfTheEvidenceIsNotWell(t *testing.T) {
	dir := t.TempDir()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "evidence.key"), keys.Text(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer up.Close()
	run := func(store string) *running {
		return start(t, write(t, fmt.Sprintf(`
store: {url: "pebble:%[1]s/%[2]s"}
auth: {tokens: [{name: root, roles: [admin], sha256: %[3]s}]}
operations: [{name: pay, evidence: durable}]
routes: [{match: POST /pay, upstream: %[4]q, operation: pay}]
evidence: {key_file: %[1]s/evidence.key}
`, dir, store, auth.HashToken(rootToken), up.URL)))
	}
	s := run("store")
	if status, _, text := asRoot(t, "POST", s.data("/pay"), "{}", "Idempotency-Key", "one"); status != http.StatusOK {
		t.Fatal(status, text)
	}
	if _, _, text := asRoot(t, "GET", s.admin("/readyz?verbose"), ""); !strings.Contains(text, "[+] evidence ok\n") {
		t.Error(text)
	}
	s.stop()
	s.done <- <-s.done
	s = run("another") // as if it had been put back to before the first entry
	for {
		status, _, text := asRoot(t, "GET", s.admin("/readyz?verbose"), "")
		if strings.Contains(text, "[+] evidence ok\n") {
			continue // it is looked at each second
		}
		if status != http.StatusOK || !strings.Contains(text, "[!] evidence: FAULT: ") || strings.Contains(text, "evidence ok") {
			t.Errorf("%d %s", status, text)
		}
		break
	}
}
