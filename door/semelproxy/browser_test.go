package semelproxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
)

// shop is an upstream that lets the pages of one origin read its answers.
func shop(t *testing.T, origin func() string, arrived, release chan struct{}) *upstream {
	return newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		if r.Header.Get("Origin") == origin() {
			w.Header().Set("Access-Control-Allow-Origin", origin())
			w.Header().Set("Access-Control-Allow-Credentials", "true")
			w.Header().Set("Vary", "Origin")
		}
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Headers", "Idempotency-Key")
			return
		}
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			<-release
		}
		run(w, r, n)
	})
}

func TestPagesReadWhatTheUpstreamLetsThemRead(t *testing.T) {
	const page, other = "https://page.example", "https://other.example"
	up := shop(t, func() string { return page }, nil, nil)
	w := newWorld(t, up.URL, nil)
	wants := func(what string, a reply, origin, replayed string) {
		t.Helper()
		if got := strings.Join(a.Header["Access-Control-Allow-Origin"], "+"); got != origin || a.Header.Get("Idempotency-Replayed") != replayed {
			t.Errorf("%s: pages of %q may read it; headers %v", what, got, a.Header)
		}
		if origin != "" && replayed != "" && (a.Header.Get("Access-Control-Allow-Credentials") != "true" ||
			!strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), "Idempotency-Replayed") || !strings.Contains(a.Header.Get("Vary"), "Origin")) {
			t.Errorf("%s: headers %v", what, a.Header)
		}
	}
	wants("nothing is known", w.send("POST", "/charges", "", "one", "Origin: "+page), "", "")
	wants("a preflight", w.send("OPTIONS", "/charges", "", "", "Origin: "+page, "Access-Control-Request-Method: POST"), page, "")
	wants("a refusal after it", w.send("POST", "/charges", "", "one", "Origin: "+page), page, "")
	wants("a refusal elsewhere", w.send("POST", "/others", "", "one", "Origin: "+page), "", "")
	wants("a refusal to others", w.send("POST", "/charges", "", "one", "Origin: "+other), "", "")
	wants("no page", w.send("POST", "/charges", "", "one"), "", "")
	wants("the first answer", w.send("POST", "/charges", "k1", "one", "Origin: "+page), page, "")
	wants("its replay", w.send("POST", "/charges", "k1", "one", "Origin: "+page), page, "true")
	wants("its replay to others", w.send("POST", "/charges", "k1", "one", "Origin: "+other), "", "true")
	wants("a conflict", w.send("POST", "/charges", "k1", "two", "Origin: "+page), page, "")

	// After a restart nothing is known but what is recorded.
	guard, err := semelhttp.New(w.engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(up.URL)
	p, err := semelproxy.New(guard, semelproxy.Options{Upstream: u, Route: semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.send("POST", "/charges", "k2", "one", "Origin: "+page, "Authorization: Bearer x")
	for origin, want := range map[string]string{page: page, other: ""} {
		r := httptest.NewRequest("POST", w.url+"/charges", strings.NewReader("one"))
		for name, value := range map[string]string{"Idempotency-Key": "k2", "Origin": origin, "Authorization": "Bearer x"} {
			r.Header.Set(name, value)
		}
		got := httptest.NewRecorder()
		p.ServeHTTP(got, r)
		if h := got.Header(); h.Get("Access-Control-Allow-Origin") != want || h.Get("Idempotency-Replayed") != "true" || h.Get("Origin") != "" {
			t.Errorf("after a restart pages of %s get %v", origin, h)
		}
	}
}

// TestBrowser has a page of another origin in Chromium pay, retry, be too early and
// be wrong, and tell what it could read.
func TestBrowser(t *testing.T) {
	t.Parallel()
	exe, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal("there is no chromium: scripts/install-services installs it")
		}
		t.Skip("there is no chromium; scripts/install-services installs it")
	}
	told := make(chan map[string]string, 1)
	var target atomic.Value // of the page's requests
	arrived, release := make(chan struct{}), make(chan struct{})
	pages := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var found map[string]string
			if err := json.NewDecoder(r.Body).Decode(&found); err == nil {
				told <- found
			}
			return
		}
		switch r.URL.Path {
		case "/arrived": // the slow call has
			<-arrived
			return
		case "/release":
			close(release)
			return
		}
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(rw, page, target.Load())
	}))
	defer pages.Close()
	up := shop(t, func() string { return pages.URL }, arrived, release)
	target.Store(newWorld(t, up.URL, nil).url)
	cmd := exec.CommandContext(t.Context(), exe, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-proxy-server", "--disable-background-networking", "--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", pages.URL)
	cmd.Stderr = io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	select {
	case found := <-told:
		for what, want := range map[string]string{
			"first": "201 null run", "replay": "201 true run", "conflict": "422 null conflict", "missing": "400 null key_missing",
			"busy": "409 null in_flight", "slow": "201 null run",
		} {
			if !strings.HasPrefix(found[what], want) {
				t.Errorf("%s: the page read %q, want %q", what, found[what], want)
			}
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the page told nothing")
	}
}

const page = `<!doctype html><script>
const call = async (path, key, body) => {
	try {
		const headers = {'Content-Type': 'text/plain'};
		if (key) headers['Idempotency-Key'] = key;
		const r = await fetch(%[1]q + path, {method: 'POST', credentials: 'include', headers, body});
		let text = await r.text();
		try { text = JSON.parse(text).code } catch {}
		return r.status + ' ' + r.headers.get('Idempotency-Replayed') + ' ' + text;
	} catch (e) { return String(e) }
};
(async () => {
	const found = {};
	found.first = await call('/charges', 'k1', 'one');
	found.replay = await call('/charges', 'k1', 'one');
	found.conflict = await call('/charges', 'k1', 'two');
	found.missing = await call('/charges', '', 'one');
	const slow = call('/slow', 'k2', 'one');
	await fetch('/arrived');
	found.busy = await call('/slow', 'k2', 'one');
	await fetch('/release');
	found.slow = await slow;
	await fetch('/', {method: 'POST', body: JSON.stringify(found)});
})();
</script>`
