package dashboard_test

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/service/dashboard"
)

// request sends a request to a handler.
func request(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// mounted is the dashboard of a program with an engine of its own.
func mounted(t *testing.T, opts dashboard.Engine) http.Handler {
	t.Helper()
	opts.Prefix = "/admin/semel"
	opts.Authorize = func(r *http.Request) (api.Caller, error) {
		switch r.Header.Get("Cookie") {
		case "user=otto":
			return api.Caller{Principal: "otto", Role: api.Admin, AllTenants: true}, nil
		case "user=nobody":
			return api.Caller{Principal: "nobody"}, nil
		}
		return api.Caller{}, errors.New("operators only")
	}
	d, err := dashboard.ForEngine(semelhttptest.New(t, nil).Engine, opts)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/semel/", d)
	return mux
}

// TestMounted: a program with an engine of its own has the page below its prefix, with its
// own users.
func TestMounted(t *testing.T) {
	h := mounted(t, dashboard.Engine{})
	for _, test := range []struct {
		path, user string
		status     int
	}{
		{"/admin/semel/", "", 200},
		{"/admin/semel/ui/js/app.js", "", 200},
		{"/admin/semel/ui/vendor/SHA256SUMS", "", 404},
		{"/admin/semel/ui/session", "", 200},
		{"/admin/semel/v1/records", "", 401},
		{"/admin/semel/v1/records", "user=nobody", 401},
		{"/admin/semel/v1/records", "user=otto", 200},
		{"/admin/semel/v1/operations", "user=otto", 200},
		{"/admin/semel/v1/evidence/checkpoint", "user=otto", 404},
		{"/v1/records", "user=otto", 404},
	} {
		if w := request(h, "GET", test.path, "Cookie", test.user); w.Code != test.status {
			t.Errorf("%s by %q: %d, want %d: %s", test.path, test.user, w.Code, test.status, w.Body)
		}
	}
	if w := request(h, "POST", "/admin/semel/v1/operations/x/executions", "Cookie", "user=otto"); w.Code != 404 && w.Code != 405 {
		t.Errorf("a call can be begun through the page: %d", w.Code)
	}
	if w := request(h, "POST", "/admin/semel/ui/session", "Authorization", "Bearer x"); w.Code != 405 && w.Code != 404 {
		t.Errorf("there is a form where the program signs people in: %d", w.Code)
	}
}

// TestRefusals: what a page of another origin, or a dashboard that is read-only, may not do.
func TestRefusals(t *testing.T) {
	settle := "/admin/semel/v1/records/x/settle"
	h := mounted(t, dashboard.Engine{})
	if w := request(h, "POST", settle, "Cookie", "user=otto", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("from another origin: %d", w.Code)
	}
	h = mounted(t, dashboard.Engine{ReadOnly: true})
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if w := request(h, method, settle, "Cookie", "user=otto"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "read-only") {
			t.Errorf("%s on a read-only dashboard: %d %s", method, w.Code, w.Body)
		}
	}
	for _, opts := range []dashboard.Options{{}, {API: h, Identify: func(*http.Request) (api.Caller, error) { return api.Caller{}, nil }, Prefix: "admin"}} {
		if _, err := dashboard.New(opts); err == nil {
			t.Errorf("%+v was taken", opts)
		}
	}
}

// TestHeaders: the page may load its own files and talk to its own server, and nobody may
// frame it.
func TestHeaders(t *testing.T) {
	h := mounted(t, dashboard.Engine{})
	for _, path := range []string{"/", "/ui/js/app.js", "/ui/css/base.css"} {
		w := request(h, "GET", "/admin/semel"+path)
		policy := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, w.Header())
		}
		if again := request(h, "GET", "/admin/semel"+path, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
}

// TestSession: a session needs both of its halves, and ends.
func TestSession(t *testing.T) {
	d, err := dashboard.New(dashboard.Options{
		SignIn: true,
		API:    http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Authorization")) }),
		Identify: func(r *http.Request) (api.Caller, error) {
			if r.Header.Get("Authorization") != "Bearer good" {
				return api.Caller{}, errors.New("the token is unknown")
			}
			return api.Caller{Principal: "otto", Role: api.Viewer}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if w := request(d, "POST", "/ui/session", "Authorization", "Bearer bad"); w.Code != 401 || len(w.Result().Cookies()) > 0 {
		t.Errorf("a bad token: %d", w.Code)
	}
	w := request(d, "POST", "/ui/session", "Authorization", "Bearer good")
	var begun struct{ Session string }
	if err := json.Unmarshal(w.Body.Bytes(), &begun); err != nil || begun.Session == "" || len(w.Result().Cookies()) != 1 {
		t.Fatal(w.Code, w.Body, err)
	}
	c := w.Result().Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
		t.Errorf("the cookie is %v", c)
	}
	cookie := c.Name + "=" + c.Value
	for _, test := range []struct{ name, cookie, half, want string }{
		{"both halves", cookie, begun.Session, "Bearer good"},
		{"the cookie alone", cookie, "", ""},
		{"the header alone", "", begun.Session, ""},
		{"another header", cookie, begun.Session[1:], ""},
		{"another cookie", cookie + "x", begun.Session, ""},
	} {
		if got := request(d, "GET", "/v1/records", "Cookie", test.cookie, "Semel-Session", test.half).Body.String(); got != test.want {
			t.Errorf("%s: the API gets %q", test.name, got)
		}
	}
	if got := request(d, "GET", "/v1/records", "Cookie", cookie, "Semel-Session", begun.Session, "Authorization", "Bearer own").Body.String(); got != "Bearer own" {
		t.Errorf("a token of its own became %q", got)
	}
	request(d, "DELETE", "/ui/session", "Cookie", cookie)
	if got := request(d, "GET", "/v1/records", "Cookie", cookie, "Semel-Session", begun.Session).Body.String(); got == "" {
		t.Error("the cookie alone ended the session")
	}
	request(d, "DELETE", "/ui/session", "Cookie", cookie, "Semel-Session", begun.Session)
	if got := request(d, "GET", "/v1/records", "Cookie", cookie, "Semel-Session", begun.Session).Body.String(); got != "" {
		t.Error("the session goes on")
	}
}

// TestSessionsOfOthers: whoever signs in again and again ends sessions of their own, and then
// of their tenant.
func TestSessionsOfOthers(t *testing.T) {
	d, err := dashboard.New(dashboard.Options{
		SignIn: true,
		API:    http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Authorization")) }),
		Identify: func(r *http.Request) (api.Caller, error) {
			tenant, who, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			return api.Caller{Tenant: tenant, Principal: who, Role: api.Viewer}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	signIn := func(who string) (goesOn func() bool) {
		w := request(d, "POST", "/ui/session", "Authorization", who)
		var begun struct{ Session string }
		if err := json.Unmarshal(w.Body.Bytes(), &begun); err != nil || len(w.Result().Cookies()) != 1 {
			t.Fatal(w.Code, w.Body, err)
		}
		c := w.Result().Cookies()[0]
		return func() bool {
			return request(d, "GET", "/v1/records", "Cookie", c.Name+"="+c.Value, "Semel-Session", begun.Session).Body.String() == who
		}
	}
	admin, first, second := signIn("b ada"), signIn("a one"), signIn("a two")
	for range 16 {
		signIn("a one")
	}
	if first() || !second() || !admin() {
		t.Errorf("after 17 sign-ins of one user: that one's first %v, another's %v, another tenant's %v", first(), second(), admin())
	}
	for i := range 1100 {
		signIn(fmt.Sprint("a user", i))
	}
	if second() || !admin() {
		t.Errorf("after 1,100 users of a tenant: one of theirs %v, another tenant's %v", second(), admin())
	}
}

// TestAnswersAreTakenApartForViewers: one at a time for each, of up to 1 MiB.
func TestAnswersAreTakenApartForViewers(t *testing.T) {
	d, err := dashboard.New(dashboard.Options{
		API: http.NotFoundHandler(),
		Identify: func(r *http.Request) (api.Caller, error) {
			if r.Header.Get("Authorization") == "" {
				return api.Caller{}, errors.New("there is no credential")
			}
			return api.Caller{Principal: r.Header.Get("Authorization"), Role: api.Viewer}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(who string, body io.Reader) int {
		r := httptest.NewRequest("POST", "/ui/answer", body)
		if who != "" {
			r.Header.Set("Authorization", who)
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w.Code
	}
	answer := "\x01\xc9\x01\x01\ntext/plain\xff"
	if got := send("", strings.NewReader(answer)); got != 401 {
		t.Errorf("without a credential: %d", got)
	}
	if got := send("otto", strings.NewReader(answer+strings.Repeat("x", 1<<20))); got != 413 {
		t.Errorf("more than 1 MiB: %d", got)
	}
	from, to := io.Pipe()
	first := make(chan int)
	go func() { first <- send("otto", from) }()
	_, _ = io.WriteString(to, answer) // it is being read
	if own, other := send("otto", strings.NewReader(answer)), send("vera", strings.NewReader(answer)); own != 503 || other != 200 {
		t.Errorf("a second one: %d; one of another user: %d", own, other)
	}
	_ = to.Close()
	if got := <-first; got != 200 {
		t.Errorf("the first: %d", got)
	}
	if got := send("otto", strings.NewReader(answer)); got != 200 {
		t.Errorf("after it: %d", got)
	}
}

// TestVendored: the libraries are the files of the packages that the lock pins.
func TestVendored(t *testing.T) {
	vendor := filepath.Join("web", "vendor")
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if read(filepath.Join(vendor, "package-lock.json")) != read(filepath.Join("testdata", "npm", "package-lock.json")) {
		t.Error("the lock has changed since: run scripts/vendor-dashboard")
	}
	sums := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(read(filepath.Join(vendor, "SHA256SUMS")))); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		sums[name] = sum
	}
	files, err := os.ReadDir(vendor)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "SHA256SUMS" || f.Name() == "package-lock.json" {
			continue
		}
		sum := sha256.Sum256([]byte(read(filepath.Join(vendor, f.Name()))))
		if hex.EncodeToString(sum[:]) != sums[f.Name()] {
			t.Errorf("%s isn't what scripts/vendor-dashboard wrote", f.Name())
		}
		delete(sums, f.Name())
	}
	if len(sums) > 0 {
		t.Errorf("missing: %v", sums)
	}
	installed := filepath.Join("testdata", "npm", "node_modules", ".installed-lock")
	if lock, err := os.ReadFile(installed); err != nil || string(lock) != read(filepath.Join(vendor, "package-lock.json")) {
		t.Skip("the packages aren't installed, so the files are compared with their sums only: run scripts/install-sdks")
	}
	dir := t.TempDir()
	if out, err := exec.Command("../../scripts/vendor-dashboard", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if read(filepath.Join(dir, "SHA256SUMS")) != read(filepath.Join(vendor, "SHA256SUMS")) {
		t.Error("the files aren't those of the packages: run scripts/vendor-dashboard")
	}
}

// TestPreloaded: the page asks at once for all modules that its first screen needs, instead of
// finding one in another, and for no other.
func TestPreloaded(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("web", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	imports := regexp.MustCompile(`(?:\bfrom|\bimport)\s*["'](\.[^"']+)["']`)
	needed := map[string]bool{}
	var need func(name string)
	need = func(name string) {
		if needed[name] {
			return
		}
		needed[name] = true
		for _, m := range imports.FindAllStringSubmatch(read(name), -1) {
			need(path.Join(path.Dir(name), m[1]))
		}
	}
	need("js/app.js")
	page := read("index.html")
	for _, m := range regexp.MustCompile(`(?:modulepreload" href|type="module" src)="ui/([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !needed[m[1]] {
			t.Errorf("index.html names %s, which the first screen does not need", m[1])
		}
		delete(needed, m[1])
	}
	for name := range needed {
		t.Errorf("index.html lacks %s", name)
	}
}

// TestKept: the page's files are kept by browsers for good under an address that changes
// with them, and are sent compressed to who takes that.
func TestKept(t *testing.T) {
	h := mounted(t, dashboard.Engine{})
	page := request(h, "GET", "/admin/semel/")
	if page.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("the page itself: %v", page.Header())
	}
	m := regexp.MustCompile(`src="(ui/[0-9a-f]{16}/js/app.js)"`).FindStringSubmatch(page.Body.String())
	if m == nil {
		t.Fatal("the page names no version of its files: ", page.Body)
	}
	kept, plain := request(h, "GET", "/admin/semel/"+m[1], "Accept-Encoding", "br, gzip"), request(h, "GET", "/admin/semel/ui/js/app.js", "Accept-Encoding", "gzip;q=0")
	if c := kept.Header().Get("Cache-Control"); !strings.Contains(c, "immutable") || kept.Header().Get("Content-Encoding") != "gzip" || kept.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("%s: %v", m[1], kept.Header())
	}
	unpacked, err := gzip.NewReader(kept.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil || string(text) != plain.Body.String() || plain.Header().Get("Content-Encoding") != "" || plain.Header().Get("ETag") == kept.Header().Get("ETag") {
		t.Errorf("the two forms differ: %v, %v and %v", err, kept.Header(), plain.Header())
	}
	if old := request(h, "GET", "/admin/semel/ui/0123456789abcdef/js/app.js"); old.Code != http.StatusNotFound {
		t.Errorf("a file of another version: %d", old.Code)
	}
}
