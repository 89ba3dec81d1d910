package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/service/dashboard"
)

// TestLabIsGuarded: nobody but an admin experiments, within bounds, and only where it is
// switched on.
func TestLabIsGuarded(t *testing.T) {
	sent := 0
	lab := &dashboard.Lab{
		Send: func(w http.ResponseWriter, _ *http.Request, _ string) { sent++; w.WriteHeader(http.StatusNoContent) },
		Call: func(*http.Request, []byte, string) semel.ID { return semel.ID{} },
	}
	ask := func(opts dashboard.Options, role api.Role, body string, headers ...string) *httptest.ResponseRecorder {
		opts.API = http.NotFoundHandler()
		opts.Identify = func(*http.Request) (api.Caller, error) {
			return api.Caller{Tenant: "acme", Principal: "otto", Role: role}, nil
		}
		d, err := dashboard.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/ui/lab", strings.NewReader(body))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w
	}
	good := `{"method":"POST","path":"/charges","key":"k","body":"{}","copies":3,"tenant":"evil"}`
	for _, test := range []struct {
		name    string
		opts    dashboard.Options
		role    api.Role
		body    string
		status  int
		says    string
		headers []string
	}{
		{"off", dashboard.Options{}, api.Admin, good, 403, "dashboard.lab", nil},
		{"an operator", dashboard.Options{Lab: lab}, api.Operator, good, 403, "needs the role admin", nil},
		{"read-only", dashboard.Options{Lab: lab, ReadOnly: true}, api.Admin, good, 403, "read-only", nil},
		{"another origin", dashboard.Options{Lab: lab}, api.Admin, good, 403, "", []string{"Sec-Fetch-Site", "cross-site"}},
		{"too many", dashboard.Options{Lab: lab}, api.Admin, strings.Replace(good, `"copies":3`, `"copies":51`, 1), 400, "1 to 50", nil},
		{"another host", dashboard.Options{Lab: lab}, api.Admin, strings.Replace(good, "/charges", "http://evil.example/", 1), 400, "this service only", nil},
		{"another host, without a scheme", dashboard.Options{Lab: lab}, api.Admin, strings.Replace(good, "/charges", "//evil.example/", 1), 400, "this service only", nil},
		{"a header in the key", dashboard.Options{Lab: lab}, api.Admin, strings.Replace(good, `"k"`, `"k\r\nHost: x"`, 1), 400, "no header can have", nil},
		{"a large body", dashboard.Options{Lab: lab}, api.Admin, strings.Replace(good, `"{}"`, `"`+strings.Repeat("x", 40<<10)+`"`, 1), 400, "32 KiB", nil},
		{"a very large one", dashboard.Options{Lab: lab}, api.Admin, strings.Repeat(" ", 65<<10) + good, 400, "too large", nil},
		{"a tunnel", dashboard.Options{Lab: lab}, api.Admin, strings.Replace(good, "POST", "CONNECT", 1), 400, "method", nil},
	} {
		if got := ask(test.opts, test.role, test.body, test.headers...); got.Code != test.status || !strings.Contains(got.Body.String(), test.says) {
			t.Errorf("%s: %d %s", test.name, got.Code, got.Body)
		}
	}
	if sent != 0 {
		t.Errorf("%d requests were sent", sent)
	}
	tenants := make(chan string, 3)
	lab.Send = func(w http.ResponseWriter, r *http.Request, tenant string) {
		if r.URL.Host != "" || r.Header.Get("Idempotency-Key") != "k" {
			t.Errorf("%+v", r)
		}
		tenants <- tenant
		w.WriteHeader(http.StatusNoContent)
	}
	got := ask(dashboard.Options{Lab: lab}, api.Admin, good)
	lines := strings.Split(strings.TrimSpace(got.Body.String()), "\n")
	var last struct{ Record *string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Record == nil || len(lines) != 4 {
		t.Errorf("%v: %s", err, got.Body)
	}
	for range 3 {
		if tenant := <-tenants; tenant != "acme" {
			t.Errorf("an admin of acme sends for %q", tenant)
		}
	}
}
