package cli

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service/config"
)

func parseProxyFlags(t *testing.T, args ...string) (config.Operation, config.Route, error) {
	t.Helper()
	var f proxyFlags
	flags := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse(args); err != nil {
		return config.Operation{}, config.Route{}, err
	}
	return f.settings("http://127.0.0.1:1")
}

func TestProxyFlagsBecomeSettings(t *testing.T) {
	op, rt, err := parseProxyFlags(t, "--key-header", "PayPal-Request-Id", "--methods", "POST,DELETE", "--in-flight", "wait",
		"--reconcile-every", "2s", "--max-body", "40MiB", "--max-result", "4MiB", "--preserve-host", "never", "--timeout", "5m", "--fresh-connections",
		"--answers", "not_executed=503", "--answers", "not_executed=200 json:/ok=false", "--answers", "final=302 header:Location=/a,b*")
	if err != nil {
		t.Fatal(err)
	}
	if op.InFlight != semel.WaitInFlight || op.ReconcileEvery != config.Duration(2*time.Second) || op.MaxResult != 4<<20 {
		t.Errorf("the operation is %+v", op)
	}
	if rt.KeyHeader != "PayPal-Request-Id" || !reflect.DeepEqual(rt.Methods, []string{"POST", "DELETE"}) || rt.MaxBody != 40<<20 ||
		rt.PreserveHost != "never" || !rt.FreshConnections || rt.Timeout != config.Duration(5*time.Minute) {
		t.Errorf("the route is %+v", rt)
	}
	if want := (config.Answers{NotExecuted: []string{"503", "200 json:/ok=false"}, Final: []string{"302 header:Location=/a,b*"}}); !reflect.DeepEqual(rt.Answers, want) {
		t.Errorf("the answers are %+v", rt.Answers)
	}
	for _, bad := range []string{"503", "maybe=503", "=503"} {
		if _, _, err := parseProxyFlags(t, "--answers", bad); err == nil || !strings.Contains(err.Error(), "--answers") {
			t.Errorf("--answers %s: %v", bad, err)
		}
	}
	cfg, _, err := config.Load(config.Source{Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.With(op, []config.Route{rt}, config.Servers{}); err != nil {
		t.Error(err)
	}
	for profile, want := range map[string]semelhttp.KeyRule{"acp": "", "stripe": semelhttp.KeyOptional, "ietf": semelhttp.KeyOptional} {
		if _, rt, _ := parseProxyFlags(t, "--profile", profile); rt.Key != want {
			t.Errorf("the key with %s is %q", profile, rt.Key)
		}
	}
	if _, rt, _ := parseProxyFlags(t, "--key", "required"); rt.Key != semelhttp.KeyRequired {
		t.Errorf("a key that is required is %q", rt.Key)
	}
	if _, _, err := parseProxyFlags(t, "--max-result", "much"); err == nil || !strings.Contains(err.Error(), "--max-result") {
		t.Errorf("a size that is none: %v", err)
	}
}

// What clients send as they come reaches the upstream once, with no flag but the
// profile: Java's offer of h2c, a stream of an LLM's SDK, a PUT.
func TestProxyGuardsWhateverHasAKey(t *testing.T) {
	exe := program(t)
	book := &stage.Upstream{}
	upstream := httptest.NewServer(book)
	defer upstream.Close()
	for profile, missing := range map[string]int{"ietf": 201, "acp": 400} {
		p := startProxy(t, exe, upstream.URL, "--store", "memory:", "--profile", profile)
		send := func(method, key string, headers ...string) (int, string) {
			body := profile + method + strings.Join(headers, "") + key
			r, err := http.NewRequestWithContext(t.Context(), method, p.URL+"/v1", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				r.Header.Set(name, value)
			}
			resp, err := stage.Direct.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.StatusCode, resp.Header.Get("Idempotency-Replayed") + resp.Header.Get("Idempotent-Replayed")
		}
		if status, _ := send("POST", ""); status != missing {
			t.Errorf("%s: a request without a key got %d", profile, status)
		}
		for i, headers := range [][]string{
			{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"},
			{"Accept: text/event-stream"}, {"Content-Type: application/grpc"}, nil,
		} {
			for _, method := range []string{"POST", "PUT", "DELETE"} {
				key := method + strconv.Itoa(i)
				first, _ := send(method, key, headers...)
				if again, replayed := send(method, key, headers...); first != 201 || again != 201 || replayed != "true" {
					t.Errorf("%s: %s with %q got %d, then %d, replayed %q", profile, method, headers, first, again, replayed)
				}
			}
		}
	}
	if twice := book.Repeated(); len(twice) > 0 {
		t.Errorf("these ran twice: %q", twice)
	}
}

// What is wrong with a flag is said of the flag.
func TestWrongFlagsOfTheProxyAreNamed(t *testing.T) {
	for flag, value := range map[string]string{"--profile": "strip", "--max-body": "-1", "--on-abandoned": "drop", "--reconcile": "nope", "--origin": "nope", "--answers": "final=nope"} {
		code, _, errs := semelWith(t, "", "proxy", "http://127.0.0.1:1", "--store", "memory:", flag, value)
		if code != ExitUsage || !strings.Contains(errs, flag) || strings.Contains(errs, "routes[") || strings.Contains(errs, "operations[") {
			t.Errorf("%s %s: exit %d, %s", flag, value, code, errs)
		}
	}
}
