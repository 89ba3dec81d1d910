package reconcile_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/reconcile"
	"github.com/semelhq/semel/internal/strictyaml"
)

func TestSettingsThatAreWrong(t *testing.T) {
	for name, c := range map[string]struct {
		set  reconcile.Settings
		want string
	}{
		"no such source":      {reconcile.Settings{Source: "strip"}, "stripe"},
		"no such file":        {reconcile.Settings{Source: "./nowhere.yaml"}, "nowhere.yaml"},
		"no such value":       {reconcile.Settings{Source: "stripe", With: []string{"order={key}"}}, "value, field"},
		"a value is missing":  {reconcile.Settings{Source: "shopify"}, "shop is missing"},
		"fixed by a call":     {reconcile.Settings{Source: "shopify", With: []string{"shop={key}"}}, "shop can't be {key}"},
		"no such part":        {reconcile.Settings{Source: "stripe", With: []string{"value={body}"}}, "value can't be {body}"},
		"another host":        {reconcile.Settings{Source: "shopify", With: []string{"shop=evil.example/"}}, "the form"},
		"in the clear":        {reconcile.Settings{Source: "stripe", URL: "http://api.example.com"}, "https"},
		"no address":          {reconcile.Settings{Source: "stripe", URL: "api.example.com"}, "address"},
		"a user in it":        {reconcile.Settings{Source: "stripe", URL: "https://a:b@api.example.com"}, "address"},
		"too early":           {reconcile.Settings{Source: "stripe", AbsentAfter: strictyaml.Duration(time.Minute)}, "shorter"},
		"a query for no rows": {reconcile.Settings{Source: "stripe", Query: "SELECT 1"}, "query"},
		"no query":            {reconcile.Settings{Source: "sql", SecretFile: "x"}, "query"},
		"no database":         {reconcile.Settings{Source: "sql", Query: "SELECT 1"}, "secret_file"},
	} {
		if _, err := reconcile.New(c.set); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSourcesThatAreWrong(t *testing.T) {
	const good = `
name: mine
about: https://example.com/docs
values: [{name: value, about: the order, default: "{key}"}]
url: https://api.example.com
ask: {path: "/orders/{value}"}
answers:
  - {proves: done, when: "json:/id={value}"}
  - {proves: absent, when: "json:/found=false"}
absent_after: 5m
`
	if _, err := reconcile.Load("mine.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"another name":     {"/orders/{value}", "/orders/{order}", "nothing here is called {order}"},
		"a secret in it":   {"/orders/{value}", "/orders/{secret}", "nothing here is called {secret}"},
		"a host of a call": {"https://api.example.com", "https://{value}.example.com", "nothing here is called {value}"},
		"a status alone":   {`, when: "json:/id={value}"`, "", "a status alone proves nothing"},
		"no time":          {"absent_after: 5m\n", "", "absent proves nothing without a time"},
		"no condition":     {"json:/found=false", "found=false", "doesn't say where"},
		"no question":      {`ask: {path: "/orders/{value}"}`, "ask: {method: GET}", "either ask with a path, or database"},
		"a default":        {`"{key}"`, `"{secret}"`, "a record has no {secret}"},
		"a form":           {`default: "{key}"`, `default: "{key}", form: "("`, "missing closing"},
		"what it is":       {"about: the order", "what: the order", "there is no setting"},
	} {
		_, err := reconcile.Load("mine.yaml", []byte(strings.Replace(good, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What would mean something else in a question is no question.
func TestNobodyIsAskedAboutACallThatCannotBeNamed(t *testing.T) {
	asked := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Error("asked", r.URL) }))
	defer asked.Close()
	for _, id := range []string{"", "' OR metadata['a']:'b", "a*", "../x", "a\nb", strings.Repeat("a", 300)} {
		settler, err := reconcile.New(reconcile.Settings{Source: "stripe", URL: asked.URL, With: []string{"value={attribute:order_id}"}})
		if err != nil {
			t.Fatal(err)
		}
		held := heldFor(time.Minute)
		held.Attributes["order_id"] = id
		if f, err := settler.Ask(t.Context(), &held); err == nil || id != "" && strings.Contains(err.Error(), id) {
			t.Errorf("%q: %+v, %v", id, f, err)
		}
	}
}

// The credential goes to the declared host, and nowhere else; and nothing else is believed.
func TestTheSourceIsAskedAndNobodyElse(t *testing.T) {
	const done = `{"data":[{"metadata":{"idempotency_key":"k-1"},"status":"succeeded"}]}`
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked with %q", r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(done))
	}))
	defer elsewhere.Close()
	for name, answer := range map[string]http.Handler{
		"a redirect": http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect),
		"too much": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(done + strings.Repeat(" ", 1<<20)))
		}),
		"it says two things": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Replace(done, `"status"`, `"status":"canceled","status"`, 1)))
		}),
	} {
		vendor := httptest.NewServer(answer)
		settler, err := reconcile.New(reconcile.Settings{Source: "stripe", URL: vendor.URL, SecretFile: secretFile(t, "sk_1")})
		if err != nil {
			t.Fatal(err)
		}
		held := heldFor(time.Minute)
		if f, err := settler.Ask(t.Context(), &held); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
		vendor.Close()
	}
}

// A new secret counts at once, and an unusable one asks nobody.
func TestTheSecretIsReadForEachQuestion(t *testing.T) {
	var got []string
	vendor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Authorization")) }))
	defer vendor.Close()
	file := secretFile(t, "one")
	settler, err := reconcile.New(reconcile.Settings{Source: "stripe", URL: vendor.URL, SecretFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"one", "two", "", "a\r\nX-Admin: 1"} {
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		held := heldFor(time.Minute)
		if f, err := settler.Ask(t.Context(), &held); err == nil {
			t.Errorf("%q: %+v", secret, f)
		}
	}
	if strings.Join(got, ",") != "Bearer one,Bearer two" {
		t.Errorf("sent %q", got)
	}
}

func TestAbsence(t *testing.T) {
	settler, err := reconcile.New(reconcile.Settings{Source: "stripe", AbsentAfter: strictyaml.Duration(5 * time.Hour)})
	if err != nil || settler.Absence() != 5*time.Hour || settler.Name() != "stripe" {
		t.Error(settler, err)
	}
}
