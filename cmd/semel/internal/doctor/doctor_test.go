package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/store"
)

// records finds what it is told to.
type records struct {
	client.Records
	search func(ctx context.Context, q store.Query) (store.Page, error)
}

func (r records) Search(ctx context.Context, q store.Query) (store.Page, error) {
	return r.search(ctx, q)
}

// state is what a service answers.
type state struct {
	token   string // empty: nobody needs one
	ready   string
	metrics string
	status  int  // of everything; zero: as it should be
	large   bool // the store can't be looked through in time
}

const (
	wellReady   = "[+] serving ok\n[+] store ok: pebble:./data\n[+] clock ok\n"
	wellMetrics = `semel_build_info{goversion="go1.26",store="pebble",version="v1"} 1
semel_attempts{state="held"} 0
semel_attempts{state="in_flight"} 3
`
)

// gauges gives samples the type that a scrape says they have.
func gauges(text string) string {
	var b strings.Builder
	typed := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		if !typed[name] {
			fmt.Fprintf(&b, "# TYPE %s gauge\n", name)
			typed[name] = true
		}
		b.WriteString(line)
	}
	return b.String()
}

// findings are those of a service in a state, asked with a token.
func findings(t *testing.T, s state, token string) map[string]Finding {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case s.status != 0:
			w.WriteHeader(s.status)
		case r.URL.Path == "/readyz":
			if strings.Contains(s.ready, "[-]") {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write([]byte(s.ready))
		case s.token != "" && given == "":
			w.WriteHeader(http.StatusUnauthorized)
		case s.token != "" && given != s.token:
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/metrics":
			_, _ = w.Write([]byte(gauges(s.metrics)))
		default:
			_, _ = w.Write([]byte(`{"nodes":3}`))
		}
	}))
	defer srv.Close()
	service, err := admin.New(srv.URL, token, "")
	if err != nil {
		t.Fatal(err)
	}
	none := records{search: func(context.Context, store.Query) (store.Page, error) {
		if s.large {
			return store.Page{}, context.DeadlineExceeded
		}
		return store.Page{}, nil
	}}
	found := map[string]Finding{}
	for _, f := range (&Asked{Service: service, Records: none, Where: " --url U", Version: "v1"}).Findings(t.Context()) {
		if found[f.Check].Status == "" || f.Status != OK {
			found[f.Check] = f
		}
	}
	return found
}

// TestABrokenService has a service in each of many states.
func TestABrokenService(t *testing.T) {
	well := state{token: "secret", ready: wellReady, metrics: wellMetrics}
	for check, f := range findings(t, well, "secret") {
		if f.Status != OK || f.Next != "" {
			t.Errorf("%s is %+v", check, f)
		}
	}
	with := func(change func(*state)) state {
		s := well
		change(&s)
		return s
	}
	for _, test := range []struct {
		name   string
		state  state
		token  string
		check  string
		status Status
		says   string
		next   string
	}{
		{"the disk is full", with(func(s *state) { s.ready += "[-] disk: FULL: no new call is accepted\n" }), "secret", "disk", Failed, "FULL", "df -h"},
		{"the clock is held back", with(func(s *state) { s.ready += "[!] clock: HELD BACK\n" }), "secret", "clock", Warning, "HELD BACK", "semel store accept-clock --url U --yes"},
		{"the log is not what it was", with(func(s *state) { s.ready += "[!] evidence: FAULT: fork\n" }), "secret", "evidence", Warning, "FAULT", "semel evidence verify --url U"},
		{"an issuer doesn't answer", with(func(s *state) { s.ready += "[!] issuers: https://id: no keys\n" }), "secret", "issuers", Warning, "no keys", "semel healthcheck --url U"},
		{"it stops", with(func(s *state) { s.ready = "[-] serving: the service is stopping\n" }), "secret", "serving", Failed, "stopping", "semel healthcheck --url U"},
		{"the caller has no token", with(func(s *state) { s.ready += "[!] issuers\n" }), "", "access", Warning, "wants a token", "semel doctor --url U --token-file FILE"},
		{"the caller has no role", well, "other", "access", Warning, "needs the role viewer", "--token-file FILE"},
		{"only callers with a role are told", with(func(s *state) { s.ready += "[!] issuers\n" }), "", "issuers", Warning, "only callers with a role", "semel healthcheck --url U"},
		{"nobody needs a token", with(func(s *state) { s.token = "" }), "", "access", Warning, "every program on that machine is an admin", "admin.token_file"},
		{"calls are held", with(func(s *state) {
			s.large = true
			s.metrics = strings.Replace(wellMetrics, `"held"} 0`, `"held"} 1`, 1) + `semel_oldest_attempt_seconds{state="held"} 7200` + "\n"
		}), "secret", "held", Warning, "1 call held, the oldest for 2h0m0s", "semel records list --url U held -unverified"},
		{"nothing is signed", with(func(s *state) { s.metrics += "semel_evidence_lag_seconds 300\n" }), "secret", "evidence", Warning, "waited 5m0s", "semel healthcheck --url U"},
		{"it is another version", with(func(s *state) { s.metrics = strings.Replace(wellMetrics, `"v1"`, `"v2"`, 1) }), "secret", "version", Warning, "runs v2; 3 nodes in the store's figures, those that have ended included; this program is v1", "semel version"},
		{"it has no metrics", with(func(s *state) { s.metrics = "<html>\n" }), "secret", "metrics", Failed, "can't be read", "semel healthcheck --url U"},
		{"it is something else", state{status: 404}, "secret", "service", Failed, "status 404", "semel healthcheck --url U"},
		{"it isn't a service", state{ready: "hello\n"}, "secret", "service", Failed, "isn't that of a service", "semel healthcheck --url U"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := findings(t, test.state, test.token)[test.check]
			if f.Status != test.status || !strings.Contains(f.Detail, test.says) || !strings.Contains(f.Next, test.next) {
				t.Errorf("%s is %+v", test.check, f)
			}
		})
	}
}

// A store that is too large to look through is not taken for one where nothing waits.
func TestSearchesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := records{search: func(ctx context.Context, q store.Query) (store.Page, error) {
			select {
			case <-ctx.Done():
				return store.Page{}, ctx.Err()
			case <-time.After(time.Second):
				return store.Page{Next: "more"}, nil
			}
		}}
		if f := parkedIn(t.Context(), slow, ""); f.Status != Warning || !strings.Contains(f.Detail, "too many records") {
			t.Errorf("%+v", f)
		}
	})
	now := time.Now()
	page := store.Page{Records: []store.Record{{StartedAt: store.InstantOf(now.Add(-time.Hour))}, {StartedAt: store.InstantOf(now.Add(-2 * time.Hour))}}, Next: "more"}
	some := records{search: func(context.Context, store.Query) (store.Page, error) { return page, nil }}
	if f, known := heldIn(t.Context(), some, ""); !known || f.Status != Warning || !strings.Contains(f.Detail, "2 calls or more are held, the oldest for 2h0m") {
		t.Errorf("%+v", f)
	}
	mixed := records{search: func(_ context.Context, q store.Query) (store.Page, error) {
		var page store.Page
		for _, to := range []string{"", "stranger", "another"} {
			if rec := (store.Record{Held: true, BoundTo: to, StartedAt: store.InstantOf(now)}); q.Matches(&rec) {
				page.Records = append(page.Records, rec)
			}
		}
		return page, nil
	}}
	if f, _ := heldIn(t.Context(), mixed, " --url U"); f.Status != Warning || !strings.Contains(f.Detail, "1 call held") || f.Next != "semel records list --url U held -unverified" {
		t.Errorf("%+v", f)
	}
	// SECURITY.md: "Such calls are listed and counted apart from others".
	if f := strangersIn(t.Context(), mixed, " --url U"); f.Status != OK || !strings.Contains(f.Detail, "2 calls held for callers whom nobody verified: semel records list --url U held unverified") {
		t.Errorf("%+v", f)
	}
	failing := records{search: func(context.Context, store.Query) (store.Page, error) { return store.Page{}, semel.ErrNotFound }}
	f, known := heldIn(t.Context(), failing, "")
	if known {
		t.Error("a search that fails tells something")
	}
	for _, f := range []Finding{f, parkedIn(t.Context(), failing, "")} {
		if f.Status != Warning || !strings.Contains(f.Detail, "not known") {
			t.Errorf("%+v", f)
		}
	}
}

func TestPrint(t *testing.T) {
	r := ReportOf([]Finding{{"store", OK, "well", ""}, {"disk", Failed, "FULL\n\x1b[31m", "df -h"}, {"clock", Warning, "ahead", "date"}})
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "ok       store  well\nfailed   disk   FULL �[31m\n                next: df -h\nwarning  clock  ahead\n                next: date\n\n1 ok, 1 warning, 1 failed\n"
	if b.String() != want || r.Healthy || r.Warnings != 1 || r.Failed != 1 {
		t.Errorf("%+v prints\n%q, want\n%q", r, b.String(), want)
	}
}

// The next command names one token file, and no context, which would exclude it.
func TestTheNextCommandHasOneToken(t *testing.T) {
	service, err := admin.New("http://s:1", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		"": " --token-file FILE", " --url U": " --url U --token-file FILE", " --url U --token-file X": " --url U --token-file FILE",
		" --token-file X --config C": " --config C --token-file FILE", " --context prod": " --url http://s:1 --token-file FILE",
	} {
		if got := (&Asked{Service: service, Where: where}).withToken(); got != want {
			t.Errorf("%q becomes %q", where, got)
		}
	}
}
