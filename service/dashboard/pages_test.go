package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/semelhq/semel/internal/docs"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// site serves the files of the site, as a server of files does.
func site(t *testing.T) string {
	form := docs.Form{Site: true, API: "openapi.json"}
	description, err := os.ReadFile("../../internal/service/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, media := docs.Ours().File(form, strings.TrimPrefix(r.URL.Path, "/"), "")
		if r.URL.Path == "/"+form.API {
			text, media = description, "application/json"
		}
		if media == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", media)
		_, _ = w.Write(text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// scheme shows pages as to somebody who prefers light or dark ones.
func (tb *tab) scheme(name string) {
	tb.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
	if _, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		tb.t.Fatal(err)
	}
}

// TestPages opens the documentation in both of its forms for browsers: the search finds the same
// pages as the program, each picture is there, and people who can't see or use a mouse can read it.
func TestPages(t *testing.T) {
	dir, axe := screenshots(t), axe(t)
	for form, base := range map[string]string{"site": site(t), "service": newWorld(t, false).page() + "/docs"} {
		t.Run(form, func(t *testing.T) {
			tb := openAt(t, base, "/index.html")
			for _, query := range []string{"charged twice", "409", "held", "Kafka", "in_flight", "webhook signatures", "retries of the", "kaf", "xyzzyx", "toString", "<b>"} {
				tb.do(chromedp.Navigate(base + "/search.html?q=" + url.QueryEscape(query)))
				tb.wait("/\\d+ pages? for/.test(document.querySelector('main').innerText)")
				want := []string{}
				for _, hit := range docs.Ours().Search(query) {
					want = append(want, hit.URL)
				}
				if got := eval[[]string](tb, "[...document.querySelectorAll('.hits a')].map((a) => a.getAttribute('href'))"); !slices.Equal(got, want) {
					t.Errorf("%q finds\n%v\nand the program\n%v", query, got, want)
				}
			}
			tb.do(chromedp.Navigate(base + "/index.html"))
			address := eval[string](tb, "(document.querySelector('#q').value = 'paid twice', (f => f.action + '?' + new URLSearchParams(new FormData(f)))(document.forms[0]))")
			tb.do(chromedp.Navigate(address))
			tb.shows("Was the order paid twice?")
			tb.do(chromedp.Navigate(eval[string](tb, "[...document.querySelectorAll('.hits a')].find((a) => a.textContent.includes('Was the order paid twice?')).href")))
			tb.wait("document.querySelector(':target').textContent === 'Was the order paid twice?'")

			// The two forms have the same pages, in the same frame. A thorough run looks at each twice.
			pages, schemes := []string{"index", "search", "tutorial-proxy", "situations", "postgresql", "adr/0032-calls-without-a-key", "api"}, []string{"light", "dark"}
			if !thorough.Run() && form == "service" {
				pages, schemes = pages[:2], schemes[1:]
			}
			for _, page := range pages {
				for _, scheme := range schemes {
					tb.scheme(scheme)
					tb.do(chromedp.EmulateViewport(1280, 860), chromedp.Navigate(base+"/"+page+".html"))
					tb.wait("document.readyState === 'complete' && [...document.images].every((i) => i.complete && i.naturalWidth > 0)")
					if page == "api" {
						tb.wait("document.querySelectorAll('article').length > 20")
					}
					if source := eval[string](tb, "(document.images[0] || {}).currentSrc || ''"); source != "" && !strings.Contains(source, "-"+scheme+".svg") {
						t.Errorf("%s: a %s page has %s", page, scheme, source)
					}
					tb.accessible(axe, fmt.Sprintf("%s %s %s", form, page, scheme))
					tb.picture(dir, fmt.Sprintf("docs-%s-%s-%s", form, strings.ReplaceAll(page, "/", "-"), scheme))
				}
				tb.do(chromedp.EmulateViewport(360, 720), chromedp.Navigate(base+"/"+page+".html"))
				if wide := eval[int](tb, "document.documentElement.scrollWidth"); wide > 360 {
					t.Errorf("%s is %d pixels wide on a phone", page, wide)
				}
				tb.picture(dir, fmt.Sprintf("docs-%s-%s-phone", form, strings.ReplaceAll(page, "/", "-")))
			}
		})
	}
}
