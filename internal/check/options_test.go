package check_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/check"
)

func TestNothingIsSentIfTheOptionsAreWrong(t *testing.T) {
	for want, opts := range map[string]check.Options{
		"isn't this machine":    {URL: "https://192.0.2.1/charges"},
		"isn't the URL":         {URL: "ftp://127.0.0.1/"},
		"no profile":            {URL: "http://127.0.0.1:1", Profile: "swift"},
		"PUT may be repeated":   {URL: "http://127.0.0.1:1", Requests: "PUT /a HTTP/1.1\n\n{}"},
		`"odd"`:                 {URL: "http://127.0.0.1:1", Requests: "POST /a HTTP/1.1\n\n{}\n### odd\nPOST /b HTTP/1.1\n"},
		`"slow" is there twice`: {URL: "http://127.0.0.1:1", Requests: "POST /a\n### slow\nPOST /b\n### slow\nPOST /b\n"},
		"not that of a request": {URL: "http://127.0.0.1:1", Requests: "curl\n"},
	} {
		_, err := check.Run(t.Context(), opts)
		if _, ok := errors.AsType[*check.UsageError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one of usage with %q", err, want)
		}
	}
}

func TestARequestThatFailsGetsNoVerdict(t *testing.T) {
	p := newPlace(t, func() (http.Handler, func()) { return http.NotFoundHandler(), func() {} })
	_, err := check.Run(t.Context(), check.Options{URL: "http://" + p.addr + "/charges"})
	if err == nil || !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("the error is %v, want one with the status", err)
	}
}

// TestWhatCantBeSeenIsSaidSo judges a service that has no keys at all, and whose answers are all
// alike, first without a count of effects and then with one.
func TestWhatCantBeSeenIsSaidSo(t *testing.T) {
	a := new(app)
	alike := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.ServeHTTP(new(unwritten), r)
		w.WriteHeader(http.StatusAccepted)
	})
	p := newPlace(t, func() (http.Handler, func()) { return alike, func() {} })
	_, _, report := judged(t, p, check.Options{})
	if v := verdict(report, "replay.once"); v.Outcome != check.Unseen || !strings.Contains(v.Saw, "--count") {
		t.Errorf("without a count it is %s: %s", v.Outcome, v.Saw)
	}
	red, _, report := judged(t, p, check.Options{Count: countURL(t, a)})
	if v := verdict(report, "replay.once"); v.Outcome != check.Broken || !slices.Equal(red, []string{"replay"}) {
		t.Errorf("with a count it is %s, and red are %q", v.Outcome, red)
	}
}

// unwritten drops an answer.
type unwritten struct{ header http.Header }

func (w *unwritten) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *unwritten) Write(p []byte) (int, error) { return len(p), nil }
func (w *unwritten) WriteHeader(int)             {}

func verdict(r *check.Report, id string) check.Verdict {
	i := slices.IndexFunc(r.Verdicts, func(v check.Verdict) bool { return v.ID == id })
	return r.Verdicts[i]
}

// TestAKeyInQuotesThatIsRefusedIsOneFault: the rest is judged with bare keys, so that one mistake
// isn't twelve.
func TestAKeyInQuotesThatIsRefusedIsOneFault(t *testing.T) {
	a := new(app)
	inner := &peer{app: a, entries: map[string]*entry{}}
	p := newPlace(t, func() (http.Handler, func()) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Idempotency-Key"), `"`) {
				http.Error(w, "quotes", http.StatusBadRequest)
				return
			}
			inner.ServeHTTP(w, r)
		}), func() {}
	})
	red, _, report := judged(t, p, check.Options{Count: countURL(t, a)})
	if v := verdict(report, "keys.quoted"); v.Outcome != check.Broken || !slices.Equal(red, []string{"keys"}) {
		t.Errorf("it is %s, and red are %q", v.Outcome, red)
	}
}

// TestReports: credentials stay out of every form, requests are marked, and each form can be read.
func TestReports(t *testing.T) {
	a := new(app)
	var mu sync.Mutex
	unmarked := 0
	bad := &peer{app: a, bug: "callers", entries: map[string]*entry{}}
	p := newPlace(t, func() (http.Handler, func()) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Semel-Check") != "1" {
				mu.Lock()
				unmarked++
				mu.Unlock()
			}
			bad.ServeHTTP(w, r)
		}), func() {}
	})
	_, _, report := judged(t, p, check.Options{})
	if unmarked > 0 {
		t.Errorf("%d requests have no mark", unmarked)
	}
	var text strings.Builder
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	doc, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	junit := report.JUnit()
	for name, form := range map[string]string{"text": text.String(), "JSON": string(doc), "JUnit": string(junit)} {
		if strings.Contains(form, "alice") || !strings.Contains(form, "callers.other") || !strings.Contains(form, "AUTHORIZATION_OF_ANOTHER") {
			t.Errorf("the %s has a credential, or not the fault and how to see it again:\n%s", name, form)
		}
	}
	var suite struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Failure string `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(junit, &suite); err != nil || len(suite.Cases) != len(report.Verdicts) {
		t.Errorf("JUnit has %d cases of %d: %v", len(suite.Cases), len(report.Verdicts), err)
	}
	for _, c := range suite.Cases {
		if (c.Failure != "") != (c.Name == "callers.other") {
			t.Errorf("%s: %s", c.Name, c.Failure)
		}
	}
}
