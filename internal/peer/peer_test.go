package peer

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// heard is a listener that remembers who sent it a token, and for what.
type heard struct {
	mu     sync.Mutex
	tokens []string
	asked  int
}

func (h *heard) serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked++
		if a := r.Header.Get("Authorization"); a != "" {
			h.tokens = append(h.tokens, r.Method+" "+r.URL.Path+" "+a)
		}
		h.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func to(url, kind string) *Listener {
	return &Listener{URL: url, Kind: kind, Token: "secret", HTTP: &http.Client{CheckRedirect: NoRedirects}}
}

func (l *Listener) get(t *testing.T, path string) (status int, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := l.Do(r)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// A token is sent to nobody who hasn't shown the mark, whatever else they answer.
func TestStrangersGetNoToken(t *testing.T) {
	var elsewhere heard
	other := elsewhere.serve(t, func(w http.ResponseWriter, _ *http.Request) { Mark(w.Header(), Admin) })
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"an upstream that answers everything": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Server", "nginx/1.27")
			_, _ = w.Write([]byte("{}"))
		}, "status 200: it has no Semel-Api header; content type application/json, server nginx/1.27"},
		"a redirect to a listener with the mark": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+r.URL.Path, http.StatusTemporaryRedirect)
		}, "it is a redirect, which is not followed"},
		"a redirect with the mark": {func(w http.ResponseWriter, r *http.Request) {
			Mark(w.Header(), Admin)
			if strings.HasSuffix(r.URL.Path, "/") {
				return
			}
			http.Redirect(w, r, other+r.URL.Path, http.StatusTemporaryRedirect)
		}, ""},
		"the other listener of the service": {func(w http.ResponseWriter, _ *http.Request) { Mark(w.Header(), Data) }, "from the data listener of a Semel service, not from its admin listener"},
		"another version of the API":        {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(Header, "admin/v2") }, "another version of the API: admin/v2"},
		"a problem that refuses": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
		}, "status 404: it has no Semel-Api header; content type application/problem+json, server unknown"},
		"a page that can't answer": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "status 503"},
	} {
		t.Run(name, func(t *testing.T) {
			var h heard
			l := to(h.serve(t, test.answer), Admin)
			status, err := l.get(t, "/v1/records/r1/settle")
			s, ok := errors.AsType[*Stranger](err)
			if ok != (test.says != "") || ok && (!strings.Contains(s.Error(), test.says) || !s.Unsent || len(h.tokens) > 0) {
				t.Errorf("%d, %v; tokens went to %q", status, err, h.tokens)
			}
			if len(elsewhere.tokens) > 0 || elsewhere.asked > 0 {
				t.Errorf("the redirect was followed: %q", elsewhere.tokens)
			}
		})
	}
}

// Who answers is asked once for a part of the API, and again after somebody else has answered.
func TestWhoAnswersIsAskedOnce(t *testing.T) {
	var h heard
	stranger := false
	l := to(h.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !stranger {
			Mark(w.Header(), Admin)
		}
		w.WriteHeader(http.StatusUnauthorized)
	})+"/prefix", "")
	for _, path := range []string{"/v1/records/r1?x=y", "/v1/records", "/livez", "/readyz?verbose"} {
		if status, err := l.get(t, path); status != http.StatusUnauthorized || err != nil {
			t.Fatal(status, err)
		}
	}
	if h.asked != 4+3 || len(h.tokens) != 4 || h.tokens[0] != "POST /prefix/v1/records/r1 Bearer secret" {
		t.Errorf("asked %d times, with %q", h.asked, h.tokens)
	}
	stranger = true
	for range 3 { // the first one is known from before
		if _, err := l.get(t, "/v1/records"); err == nil {
			t.Error("a stranger is believed")
		}
	}
	if len(h.tokens) != 5 {
		t.Errorf("tokens: %q", h.tokens)
	}
}

// A service that is too busy to look at a request says so without the mark.
func TestBusyServicesAreNoStrangers(t *testing.T) {
	var h heard
	l := to(h.serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		w.WriteHeader(http.StatusTooManyRequests)
	}), "")
	if status, err := l.get(t, "/v1/batch"); status != http.StatusTooManyRequests || err != nil || len(h.tokens) > 0 {
		t.Errorf("%d, %v, %q", status, err, h.tokens)
	}
}

// Nobody else chooses the token that is sent, or the file that it comes from.
func TestTokenFiles(t *testing.T) {
	const says = "secret"
	for name, test := range map[string]struct {
		file, dir os.FileMode
		link      bool // a link of ours in another directory
		wrong     string
	}{
		"of ours":                       {file: 0o600, dir: 0o700},
		"that others can read":          {file: 0o644, dir: 0o755},
		"a link of ours":                {file: 0o600, dir: 0o700, link: true},
		"that everybody can write":      {file: 0o666, dir: 0o755, wrong: "chmod go-w"},
		"that a group can write":        {file: 0o660, dir: 0o755, wrong: "chmod go-w"},
		"that everybody can replace":    {file: 0o600, dir: 0o777, wrong: "chmod o-w"},
		"a link to what others write":   {file: 0o666, dir: 0o700, link: true, wrong: "chmod go-w"},
		"a link to what can be changed": {file: 0o600, dir: 0o777, link: true, wrong: "chmod o-w"},
		"in a directory such as /tmp":   {file: 0o600, dir: 0o777 | os.ModeSticky},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "token")
			if err := errors.Join(os.WriteFile(file, []byte(says+"\n"), 0o600), os.Chmod(file, test.file), os.Chmod(dir, test.dir)); err != nil {
				t.Fatal(err)
			}
			if test.link {
				link := filepath.Join(t.TempDir(), "link")
				if err := os.Symlink(file, link); err != nil {
					t.Fatal(err)
				}
				file = link
			}
			switch got, err := Token("", file); {
			case test.wrong == "" && (got != says || err != nil):
				t.Errorf("%q, %v", got, err)
			case test.wrong != "" && (err == nil || got != "" || !strings.Contains(err.Error(), test.wrong) || strings.Contains(err.Error(), says)):
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	t.Run("a link of somebody else", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can make one")
		}
		dir := t.TempDir()
		file, link := filepath.Join(dir, "token"), filepath.Join(dir, "link")
		if err := errors.Join(os.WriteFile(file, []byte(says), 0o600), os.Symlink(file, link), os.Lchown(link, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if got, err := Token("", link); err == nil || got != "" {
			t.Errorf("%q, %v", got, err)
		}
	})
}
