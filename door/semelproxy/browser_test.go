package semelproxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
			w.Header().Set("Access-Control-Allow-Headers", "X-Theirs") // the upstream knows nothing of keys
			return
		}
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			<-release
		}
		run(w, r, n)
	})
}

func TestPagesOfTheRoutesOriginsReadRefusalsAndReplays(t *testing.T) {
	const page, denied, other = "https://page.example", "https://denied.example", "https://other.example"
	up := shop(t, func() string { return page }, nil, nil)
	of := func(mode semelproxy.Mode) *world {
		return newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Mode, o.Route.Origins = mode, []string{page, denied} })
	}
	wants := func(what string, a reply, origin, replayed string) {
		t.Helper()
		h := a.Header
		if got := strings.Join(h["Access-Control-Allow-Origin"], "+"); got != origin || h.Get("Idempotency-Replayed") != replayed {
			t.Errorf("%s: pages of %q may read it; headers %v", what, got, h)
		}
		if exposed := strings.Contains(strings.Join(h["Access-Control-Expose-Headers"], ","), "Idempotency-Replayed"); exposed != (origin != "") {
			t.Errorf("%s: headers %v", what, h)
		}
		if origin != "" && (h.Get("Access-Control-Allow-Credentials") != "true" || !slices.Contains(h["Vary"], "Origin")) {
			t.Errorf("%s: headers %v", what, h)
		}
	}
	w := of(semelproxy.ModeEnforce)
	wants("a refusal", w.send("POST", "/charges", "", "one", "Origin: "+page), page, "")
	wants("a refusal to others", w.send("POST", "/charges", "", "one", "Origin: "+other), "", "")
	wants("no page", w.send("POST", "/charges", "", "one"), "", "")
	wants("the first answer", w.send("POST", "/charges", "k1", "one", "Origin: "+page), page, "")
	wants("its replay", w.send("POST", "/charges", "k1", "one", "Origin: "+page), page, "true")
	wants("its replay to others", w.send("POST", "/charges", "k1", "one", "Origin: "+other), "", "true")
	wants("a conflict", w.send("POST", "/charges", "k1", "two", "Origin: "+page), page, "")
	wants("an answer that the upstream doesn't let them read", w.send("POST", "/charges", "k2", "one", "Origin: "+denied), "", "")
	wants("an answer without a key", w.send("GET", "/charges", "", "", "Origin: "+page), page, "")

	for _, mode := range []semelproxy.Mode{semelproxy.ModeEnforce, semelproxy.ModeShadow, semelproxy.ModeOff} {
		for origin, want := range map[string]string{page: "X-Theirs,Idempotency-Key", denied: "X-Theirs", other: "X-Theirs"} {
			a := of(mode).send("OPTIONS", "/charges", "", "", "Origin: "+origin, "Access-Control-Request-Method: POST")
			if got := strings.Join(a.Header["Access-Control-Allow-Headers"], ","); got != want {
				t.Errorf("%s: a preflight lets pages of %s send %s, want %s", mode, origin, got, want)
			}
			if got := a.Header.Get("Access-Control-Allow-Origin"); got != "" && got != page || (got == page) != (origin == page) {
				t.Errorf("%s: a preflight allows %q to pages of %s", mode, got, origin)
			}
		}
	}
	// Without the setting, pages get what the upstream says, and nothing else.
	plain := newWorld(t, up.URL, nil)
	plain.send("POST", "/charges", "k1", "one", "Origin: "+page)
	for key, want := range map[string]string{"k1": page, "": ""} {
		a := plain.send("POST", "/charges", key, "one", "Origin: "+page)
		if got := a.Header.Get("Access-Control-Allow-Origin"); got != want || a.Header.Get("Access-Control-Expose-Headers") != "" {
			t.Errorf("with the key %q: headers %v", key, a.Header)
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
	target.Store(newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Route.Origins = []string{pages.URL} }).url)
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
