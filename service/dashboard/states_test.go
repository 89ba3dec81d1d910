package dashboard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/rig/thorough"
)

// What a flaky way to a server does with requests for data.
const (
	passing = iota
	hanging
	failing
	storeAway
)

// flaky is a way to a service on which requests for data hang or fail, as it's told. The
// page itself and who its user is always arrive.
type flaky struct {
	*httptest.Server
	does atomic.Int32
}

func newFlaky(t *testing.T, page string) *flaky {
	to, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) {}, // the tab is gone
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data := strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == "/readyz" || r.URL.Path == "/openapi.json" || r.URL.Path == "/problems/"
		switch does := f.does.Load(); {
		case data && does == hanging:
			<-r.Context().Done()
		case data && does == failing && r.URL.Path == "/readyz":
			panic(http.ErrAbortHandler)
		case data && does == failing:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"title":"Store unavailable","status":503,"detail":"The disk is on fire.","code":"store_unavailable"}`)
		case data && does == storeAway && r.URL.Path == "/readyz":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "[+] serving ok: semel v1\n[-] store: PostgreSQL at db:5432 refuses connections, since 13:46 UTC (4 checks wait for it)\n")
		case data && does == storeAway:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"title":"Store unavailable","status":503,"detail":"It can't be told whether the call was delivered before.","code":"store_unavailable"}`)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// TestStates shows each screen while its data is on the way, when it can't be had, and when
// there is none: it says which of these it is, and what to do.
func TestStates(t *testing.T) {
	way := newFlaky(t, newWorld(t, false).page())
	dir, axe := screenshots(t), axe(t)
	for i, screen := range []struct{ name, hash, failed, empty string }{
		{"overview", "#/overview", "The disk is on fire", "No delivery yet"},
		{"records", "#/records", "The disk is on fire", "No call has come yet"},
		{"record", "#/record/AQAAAWEBYg", "The disk is on fire", "This record isn't here"},
		{"find", "#/find/nobody", "The disk is on fire", "Nothing is named nobody"},
		{"held", "#/held", "The disk is on fire", "Nothing is held"},
		{"conflicts", "#/conflicts", "The disk is on fire", "No conflict in the last"},
		{"tail", "#/tail", "The live events can't be had", "Waiting for the first delivery"},
		{"dispatch", "#/dispatch", "The disk is on fire", "There are no messages"},
		{"operations", "#/operations", "The disk is on fire", "payments.charge"},
		{"operation", "#/operations/nothing", "The disk is on fire", "This service does not have the operation"},
		{"evidence", "#/evidence", "The disk is on fire", "No entry yet"},
		{"health", "#/health", "The server does not answer", "This node is ready"},
		{"reference", "#/reference", "The disk is on fire", "Search records"},
		{"docs", "#/docs", "The disk is on fire", "store_unavailable"},
	} {
		t.Run(screen.name, func(t *testing.T) {
			if i%3 > 0 {
				thorough.Only(t, "every third screen is looked at here")
			}
			way.does.Store(hanging)
			tb := openAt(t, way.URL, "/"+screen.hash)
			tb.wait("document.querySelector('main .loading')?.innerText.includes('…')")
			tb.close() // a browser has six connections to a server
			way.does.Store(failing)
			tb = openAt(t, way.URL, "/"+screen.hash)
			tb.shows(screen.failed)
			tb.wait("document.querySelectorAll('main .failed[role=alert]').length === 1 && !document.querySelector('main .loading') && !document.querySelector('main').innerText.includes('which are all')")
			tb.picture(dir, screen.name+"-failed")
			tb.accessible(axe, screen.name+" failed")
			way.does.Store(passing)
			tb.wait("!document.querySelector('main .failed') || [...document.querySelectorAll('main .failed button')].some((b) => b.textContent === 'Try again' && (b.click(), true))")
			tb.shows(screen.empty)
			tb.wait("!document.querySelector('main .failed, main .loading')")
			tb.picture(dir, screen.name+"-empty")
			tb.accessible(axe, screen.name+" empty")
			tb.close()
		})
	}
	t.Run("the store goes away", func(t *testing.T) { // one bar for one cause, and old figures look old
		tb := openAt(t, way.URL, "/#/overview")
		tb.shows("Held")
		tb.wait("document.querySelector('.tiles') && document.querySelector('.banner')")
		way.does.Store(storeAway)
		tb.shows("PostgreSQL at db:5432 refuses connections, since 13:46 UTC")
		tb.wait("document.querySelectorAll('.banner').length === 1 && !document.querySelector('main .failed') && document.querySelector('.tiles.old') && document.querySelector('.tile').innerText.includes('as it was at ')")
		tb.picture(dir, "overview-away")
		for _, theme := range []string{"light", "dark"} { // after a reload there are no figures
			tb.theme(theme)
			tb.wait("document.querySelectorAll('.banner, main .failed').length === 1")
			tb.picture(dir, "overview-away-"+theme)
			tb.accessible(axe, "overview without a store, "+theme)
		}
		way.does.Store(passing)
		tb.wait("!document.querySelector('.banner.red') && !document.querySelector('.tiles.old')")
		tb.close()
	})
	t.Run("what nothing matches", func(t *testing.T) {
		tb := openAt(t, way.URL, "/#/nowhere")
		tb.shows("There is no such screen")
		tb.visit("#/records?q=key%3Anothing")
		tb.shows("No record matches")
		tb.visit("#/reference")
		tb.fill("main input", "nothing like that")
		tb.shows("No such endpoint")
		tb.visit("#/docs")
		tb.fill("main input", "nothing like that")
		tb.shows("No such code")
	})
}
