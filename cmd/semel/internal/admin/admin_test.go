package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/problem"
)

// answering is a listener that gives one answer, to those who have the token.
func answering(t *testing.T, status int, body string) *Service {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer.Mark(w.Header(), peer.Admin)
		switch r.Header.Get("Authorization") {
		case "Bearer secret":
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		case "":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(srv.URL+"/", "", file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAttempts(t *testing.T) {
	s := answering(t, 200, `# HELP semel_attempts x
# TYPE semel_attempts gauge
semel_attempts{state="held"} 2
semel_attempts{state="in_flight"} 4
# TYPE semel_oldest_attempt_seconds gauge
semel_oldest_attempt_seconds{state="held"} 90.5
# TYPE semel_build_info gauge
semel_build_info{goversion="go1.26.8",store="pebble",version="v1.2.3"} 1
# TYPE semel_decisions_total counter
semel_decisions_total{decision="replay",door="http",operation="a \"b\""} 3
`)
	if a, err := s.Attempts(t.Context()); err != nil || a == nil || *a != (Attempts{InFlight: 4, Held: 2, OldestHeld: 90.5}) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := answering(t, 200, "semel_ready 1\n").Attempts(t.Context()); err != nil || a != nil {
		t.Errorf("attempts are known without having been counted: %+v, %v", a, err)
	}
}

func TestReady(t *testing.T) {
	want := []Check{{'+', "serving", ""}, {'+', "store", "pebble:./data: x"}, {'!', "issuers", ""}, {'-', "disk", "FULL: no space"}}
	for _, status := range []int{200, 503} {
		got, err := answering(t, status, "[+] serving ok\n[+] store ok: pebble:./data: x\n[!] issuers\n[-] disk: FULL:\nno space\n").Ready(t.Context())
		if err != nil || len(got) != len(want) {
			t.Fatalf("%+v, %v", got, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%+v, want %+v", got[i], want[i])
			}
		}
	}
}

// What isn't a service, or doesn't let the caller in, is told apart from one that is away.
func TestErrors(t *testing.T) {
	ask := map[string]func(s *Service) error{
		"ready":    func(s *Service) error { _, err := s.Ready(t.Context()); return err },
		"figures":  func(s *Service) error { _, err := s.Figures(t.Context(), time.Hour); return err },
		"attempts": func(s *Service) error { _, err := s.Attempts(t.Context()); return err },
	}
	away := answering(t, 200, "")
	away.at.URL = "http://127.0.0.1:1"
	wrong := answering(t, 200, "")
	wrong.at.TokenFile, wrong.at.Token = "", "other"
	for name, f := range ask {
		for _, other := range []*Service{answering(t, 404, "not found"), answering(t, 302, ""), answering(t, 200, "<html>\n"), answering(t, 200, strings.Repeat("x", maxAnswer+1))} {
			if err := f(other); !isAnswer(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for s, code := range map[*Service]semel.Code{away: semel.CodeStoreUnavailable, away.Anonymous(): semel.CodeStoreUnavailable, answering(t, 200, "").Anonymous(): door.CodeUnauthorized, wrong: semel.CodeForbidden} {
			if e, ok := errors.AsType[*semel.Error](f(s)); !ok || e.Code != code {
				t.Errorf("%s: %v, want %s", name, f(s), code)
			}
		}
	}
	for _, url := range []string{"", "x:y", "ftp://x", "127.0.0.1:8481"} {
		if _, err := New(url, "", ""); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}

// TestRefusals: a refusal of the service is told as such, whatever its status.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		media  string
		body   string
		code   semel.Code // empty: no answer of a service
	}{
		{"a wrong name of the host", 421, problem.Type, `{"code":"unknown_host","detail":"only loopback names"}`, door.CodeUnknownHost},
		{"with a parameter", 421, problem.Type + "; charset=utf-8", `{"code":"unknown_host","detail":"only loopback names"}`, door.CodeUnknownHost},
		{"too much in flight", 503, problem.Type, `{"code":"overloaded","detail":"only loopback names"}`, "overloaded"},
		{"a path that the service says it doesn't have", 404, problem.Type, `{"code":"not_found","detail":"only loopback names"}`, semel.CodeNotFound},
		{"a problem without a code", 404, problem.Type, `{"detail":"only loopback names"}`, ""},
		{"a problem that is not JSON", 421, problem.Type, `<html>`, ""},
		{"another type", 421, "application/json", `{"code":"unknown_host","detail":"only loopback names"}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				peer.Mark(w.Header(), peer.Admin)
				problem.WriteBody(w, test.status, test.media, []byte(test.body))
			}))
			t.Cleanup(srv.Close)
			s, err := New(srv.URL, "secret", "")
			if err != nil {
				t.Fatal(err)
			}
			for name, ask := range map[string]func() error{
				"ready":      func() error { _, err := s.Ready(t.Context()); return err },
				"figures":    func() error { _, err := s.Figures(t.Context(), time.Hour); return err },
				"attempts":   func() error { _, err := s.Attempts(t.Context()); return err },
				"operations": func() error { _, err := s.Commands(t.Context()); return err },
			} {
				err := ask()
				e, ok := errors.AsType[*semel.Error](err)
				switch {
				case test.code == "" && !isAnswer(err):
					t.Errorf("%s: %v is not told as an answer of something else", name, err)
				case test.code != "" && (!ok || e.Code != test.code || e.Message != "only loopback names" || isAnswer(err)):
					t.Errorf("%s: %v, want %s", name, err, test.code)
				}
			}
		})
	}
}

func isAnswer(err error) bool {
	_, ok := errors.AsType[*client.AnswerError](err)
	return ok
}
