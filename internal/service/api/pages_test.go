package api

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/door"
)

func fetchPage(t *testing.T, url, accept string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

func TestPages(t *testing.T) {
	w := newWorld(t)

	t.Run("the type of every problem resolves, for people and programs", func(t *testing.T) {
		for _, info := range door.Meanings() {
			for _, base := range []string{w.data.URL, w.admin.URL} {
				status, header, text := fetchPage(t, base+"/problems/"+string(info.Code), "text/html,*/*")
				if status != 200 || header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(text, "<code>"+string(info.Code)+"</code>") {
					t.Errorf("%s: status %d: %s", info.Code, status, text)
				}
				status, header, text = fetchPage(t, base+"/problems/"+string(info.Code), "*/*")
				if status != 200 || header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.Contains(text, info.Meaning) || !strings.Contains(text, info.Action) {
					t.Errorf("%s: status %d: %s", info.Code, status, text)
				}
			}
		}
		if status, _, text := fetchPage(t, w.data.URL+"/problems/", "*/*"); status != 200 || strings.Count(text, "What to do:") != len(door.Meanings()) {
			t.Errorf("status %d: %s", status, text)
		}
		w.send("shop", "GET", "/problems/nothing", "").refused(404, "not_found")
	})

	t.Run("the page of the API asks nobody else", func(t *testing.T) {
		outside := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}|innerHTML|eval\(|\bon[a-z]+=|style=`)
		for path, media := range map[string]string{"/docs": "text/html; charset=utf-8", "/docs/api.html": "text/html; charset=utf-8", "/docs/api.js": "text/javascript; charset=utf-8", "/docs/docs.css": "text/css; charset=utf-8"} {
			status, header, text := fetchPage(t, w.admin.URL+path, "*/*")
			if status != 200 || header.Get("Content-Type") != media || len(text) < 300 {
				t.Errorf("%s: status %d, %s, %d bytes", path, status, header.Get("Content-Type"), len(text))
			}
			if found := outside.FindString(text); found != "" && path != "/docs" { // which links to the repository
				t.Errorf("%s has %q", path, found)
			}
			if csp := header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
				t.Errorf("%s: the policy is %q", path, csp)
			}
		}
	})

	t.Run("the documentation finds pages, has their Markdown, and no more", func(t *testing.T) {
		if status, _, text := fetchPage(t, w.admin.URL+"/docs/search.html?q=paid+twice", "*/*"); status != 200 || !strings.Contains(text, `href="questions.html#was-the-order-paid-twice"`) {
			t.Errorf("status %d: %s", status, text)
		}
		for path, want := range map[string]string{"/docs/mcp.md": "# MCP", "/docs/llms.txt": "](questions.md)", "/docs/": "<h2>Tutorials</h2>", "/docs/adr/0001-store-contract.html": "../docs.css", "/docs/images/whole-dark.svg": "<title"} {
			if status, _, text := fetchPage(t, w.admin.URL+path, "*/*"); status != 200 || !strings.Contains(text, want) {
				t.Errorf("%s: status %d: %.300s", path, status, text)
			}
		}
		for _, path := range []string{"/docs/nothing.html", "/docs/files.go", "/docs/images/dashboard.json", "/docs/..%2f..%2fgo.mod"} {
			if status, _, text := fetchPage(t, w.admin.URL+path, "*/*"); status != 404 {
				t.Errorf("%s: status %d: %.300s", path, status, text)
			}
		}
		w.send("nobody", "GET", "/docs/mcp.html", "").refused(401, "unauthorized")
	})

	t.Run("the description of the data handler has no more than it serves", func(t *testing.T) {
		if n := len(w.checks[w.data.URL].operations()); n != 15 {
			t.Errorf("%d endpoints", n)
		}
	})

	t.Run("answers are not kept by caches and not read as something else", func(t *testing.T) {
		for _, g := range []got{w.begin("shop", "charge", "k"), w.replay("shop", "charge", "k"), w.send("shop", "GET", "/nothing", ""), w.send("nobody", "GET", "/v1/operations", "")} {
			if g.Header.Get("Cache-Control") != "no-store" || g.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("status %d: %v", g.Status, g.Header)
			}
		}
	})

	t.Run("with a base, types and locations have it", func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.BaseURL = "https://semel.example" })
		x := w.begin("shop", "charge", "k")
		if loc := x.Header.Get("Location"); loc != "https://semel.example/v1/records/"+x.str("record.id") {
			t.Errorf("Location is %q", loc)
		}
		if g := w.replay("shop", "charge", "k"); g.str("type") != "https://semel.example/problems/in_flight" {
			t.Errorf("%s", g.Raw)
		}
		if g := w.send("shop", "POST", beginCharge, `{"x":1}`); g.str("type") != "https://semel.example/problems/invalid_call" {
			t.Errorf("%s", g.Raw)
		}
	})
}

func TestNew(t *testing.T) {
	w := newWorld(t)
	for name, opts := range map[string]Options{
		"without an engine":  {Identify: identify},
		"without identities": {Engine: w.engine},
	} {
		t.Run(name+" there is no API", func(t *testing.T) {
			if _, err := New(opts); err == nil {
				t.Error("there is one")
			}
		})
	}
	t.Run("roles have names", func(t *testing.T) {
		if NoRole.String() != "none" || Viewer.String() != "viewer" || Operator.String() != "operator" || Admin.String() != "admin" {
			t.Error("they have not")
		}
	})
}
