package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/strictyaml"
)

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func mustLoad(t *testing.T, src Source) (*Config, *Origins) {
	t.Helper()
	c, origins, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return c, origins
}

func TestDefault(t *testing.T) {
	t.Run("without a file it serves on loopback, on the embedded store, one operation", func(t *testing.T) {
		c := Default()
		if c.Listen.Address != "127.0.0.1:8480" || c.Admin.Address != "127.0.0.1:8481" || c.Store.URL != "pebble:./semel-data" {
			t.Errorf("%+v", c)
		}
		if op := c.operation(DefaultOperation); op == nil || op.Name != "default" || len(c.Operations) != 1 || c.Archives() {
			t.Errorf("%+v", c.Operations)
		}
	})
	t.Run("an empty file is no file", func(t *testing.T) {
		c, _ := mustLoad(t, Source{Path: "semel.yaml", Data: []byte{}})
		if paths := Diff(c, Default()); len(paths) > 0 {
			t.Errorf("%q differ", paths)
		}
	})
}

func TestPrecedence(t *testing.T) {
	const file = "listen: {address: 127.0.0.1:1}\nstore:\n  url: \"memory:\"\nlimits: {connections: 5}\n"
	env := lookup(map[string]string{
		"SEMEL_LISTEN_ADDRESS": "127.0.0.1:2", "SEMEL_STORE_URL": "pebble:./b",
		"SEMEL_AUTH_TRUSTED_HEADER_FROM": "10.0.0.0/8, 10.1.0.0/16", "SEMEL_AUTH_TRUSTED_HEADER_PRINCIPAL": "X-P",
	})
	c, origins := mustLoad(t, Source{Path: "semel.yaml", Data: []byte(file), Env: env,
		Flags: map[string]string{"listen": "127.0.0.1:3", "log.level": "debug"}})
	for _, test := range []struct{ name, path, have, want, origin string }{
		{"a flag stands above a variable and the file", "listen.address", c.Listen.Address, "127.0.0.1:3", "flag --listen"},
		{"a flag may be the path", "log.level", c.Log.Level, "debug", "flag --log.level"},
		{"a variable stands above the file", "store.url", c.Store.URL, "pebble:./b", "env SEMEL_STORE_URL"},
		{"the file stands above the default", "limits.connections", strictyaml.TextOf(reflect.ValueOf(c.Limits.Connections)), "5", "semel.yaml:4:23"},
		{"the default is what remains", "admin.address", c.Admin.Address, "127.0.0.1:8481", "default"},
		{"a variable sets a list by commas", "auth.trusted_header.from", strings.Join(c.Auth.TrustedHeader.From, "+"), "10.0.0.0/8+10.1.0.0/16", "env SEMEL_AUTH_TRUSTED_HEADER_FROM"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.have != test.want || origins.Of(test.path).String() != test.origin {
				t.Errorf("%s is %q from %s, want %q from %s", test.path, test.have, origins.Of(test.path), test.want, test.origin)
			}
		})
	}
	t.Run("every setting outside of lists can be set by its variable", func(t *testing.T) {
		strictyaml.EachLeaf("", reflect.ValueOf(Default()).Elem(), func(path string, _ reflect.Value, _ strictyaml.Field) {
			name := EnvName(path)
			if name == "" {
				return
			}
			origins := func() *Origins {
				_, o, _ := Load(Source{Env: lookup(map[string]string{name: "?"})})
				return o
			}()
			if o := origins.Of(path); o.Kind != strictyaml.FromEnv || o.Name != name {
				t.Errorf("%s comes from %s", path, o)
			}
		})
	})
	t.Run("mistakes in variables and flags are named", func(t *testing.T) {
		_, _, err := Load(Source{Env: lookup(map[string]string{"SEMEL_LIMITS_CONNECTIONS": "many", "SEMEL_ADMIN_ADDRESS": ":80"}),
			Flags: map[string]string{"lsten": "x", "store": "memry:"}})
		want := `env SEMEL_ADMIN_ADDRESS: admin.address: :80 can be reached from other machines, and callers would need no credential; set admin.token_file, add callers to auth, or listen on 127.0.0.1
env SEMEL_LIMITS_CONNECTIONS: limits.connections: "many" is not a whole number; write digits, such as 1000
flag --lsten: there is no setting lsten; did you mean listen?
flag --store: store.url: the value names no known kind of store; did you mean memory:?`
		if err == nil || err.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	})
	t.Run("a section that variables empty altogether is checked like any other", func(t *testing.T) {
		_, _, err := Load(Source{Env: lookup(map[string]string{"SEMEL_PURGE_INTERVAL": "0s"})})
		want := "env SEMEL_PURGE_INTERVAL: purge.interval: 0s is not between 1s and 1d"
		if err == nil || err.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	})
	t.Run("a file that is not there is an error that says so", func(t *testing.T) {
		_, _, err := Load(Source{Path: filepath.Join(t.TempDir(), "none.yaml")})
		if !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}

func TestSecrets(t *testing.T) {
	const file = "store: {url_file: testdata/store-url}\nauth:\n  tokens:\n    - {name: a, token_file: testdata/token}\n"
	t.Run("files give a URL, and a token as its digest", func(t *testing.T) {
		c, origins := mustLoad(t, Source{Path: "semel.yaml", Data: []byte(file)})
		if c.Store.URL != "pebble:/var/lib/semel" || origins.Of("store.url").Line != 1 {
			t.Errorf("%q from %s", c.Store.URL, origins.Of("store.url"))
		}
		if got := c.Auth.Tokens[0]; got.SHA256 != "c4bbcb1fbec99d65bf59d85c8cb62ee2db963f0fe106f483d9afa73bd4e39a8a" || got.Principal != "a" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a file that everybody can write is refused, although it can be read", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "token")
		if err := errors.Join(os.WriteFile(name, []byte("0123456789abcdef"), 0o600), os.Chmod(name, 0o666)); err != nil {
			t.Fatal(err)
		}
		_, _, err := Load(Source{Path: "semel.yaml", Data: []byte("admin: {token_file: '" + name + "'}\n")})
		if err == nil || !strings.Contains(err.Error(), "the file can't be used: "+name+" can be written by everybody") || !strings.Contains(err.Error(), "chmod o-w "+name) || strings.Contains(err.Error(), "can't be read") {
			t.Error(err)
		}
	})
	t.Run("what is printed has neither digests nor passwords", func(t *testing.T) {
		c := Default()
		c.Store.URL = "postgres://semel:hunter2@db/semel?sslpassword=hunter2"
		c.Auth.Tokens = []auth.Token{{Name: "a", SHA256: strings.Repeat("0123456789abcdef", 4)}}
		var out bytes.Buffer
		list, err := Settings(c, &Origins{}, "")
		if err := errors.Join(err, Print(&out, c), json.NewEncoder(&out).Encode(Redacted(c)), Explain(&out, list)); err != nil {
			t.Fatal(err)
		}
		out.WriteString(c.Store.Name())
		if text := out.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "89abcdef") || strings.Count(text, "01234567...") != 3 {
			t.Error(text)
		}
		if c.Auth.Tokens[0].SHA256[:12] != "0123456789ab" {
			t.Error("printing changed the configuration")
		}
	})
}

func TestAddressesOfRedis(t *testing.T) {
	for _, address := range []string{"redis+unix:///run/redis.sock", "redis-sentinel://a:hunter2@b,c/main?sentinel_password=hunter2", "valkeys://cache", "rediss-cluster://b:1,c:2"} {
		c, _ := mustLoad(t, Source{Path: "semel.yaml", Data: []byte("store: {url: '" + address + "'}\noperations: [{name: op}]\n")})
		if !c.Store.Redis() || c.Operations[0].MaxResult != redisMaxResult || strings.Contains(c.Store.Name(), "hunter2") {
			t.Errorf("%s is %+v", address, c.Store)
		}
	}
}

func TestDiff(t *testing.T) {
	load := func(text string) *Config {
		c, _ := mustLoad(t, Source{Path: "semel.yaml", Data: []byte(text)})
		return c
	}
	for _, test := range []struct {
		name, a, b    string
		want, restart []string
	}{
		{"another spelling is no change", "limits: {read_timeout: 60s, total_bytes: 1GiB}", "limits: {total_bytes: 1073741824, read_timeout: 1m}\nlog: {level: info}", nil, nil},
		{"single settings are named", "log: {level: info}", "log: {level: debug}\nlimits: {shutdown_grace: 1s}", []string{"limits.shutdown_grace", "log.level"}, nil},
		{"items of lists are named by their place", "operations: [{name: a, effects: [x]}, {name: b}]", "operations: [{name: a, effects: [y]}]", []string{"operations[0].effects", "operations[1]"}, nil},
		{"that there are no effects is not the same as not saying which", "operations: [{name: a, effects: []}]", "operations: [{name: a, shields: []}]", []string{"operations[0].effects"}, nil},
		{"listeners and the store need a restart", "store: {url: 'memory:'}", "listen: {tls: {cert: c, key: k}}\nlog: {format: json}", []string{"listen.tls.cert", "listen.tls.key", "store.url", "log.format"}, []string{"listen.tls.cert", "listen.tls.key", "store.url"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := load(test.a), load(test.b)
			got := Diff(a, b)
			if !slices.Equal(got, test.want) {
				t.Errorf("the difference is %q, want %q", got, test.want)
			}
			if restart := NeedsRestart(got); !slices.Equal(restart, test.restart) {
				t.Errorf("%q need a restart, want %q", restart, test.restart)
			}
		})
	}
}

func TestConversion(t *testing.T) {
	c, _, err := loadCorpus(t, "testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("an operation becomes the engine's policy, member by member", func(t *testing.T) {
		op, err := c.Operations[0].Policy()
		want := semel.Operation{
			Name: "payments.charge", Class: semel.Shielded, Financial: true, Window: 168 * time.Hour, Lease: 30 * time.Second,
			OnFailure: semel.RetryFailure, OnAbandoned: semel.HoldAbandoned, InFlight: semel.RefuseInFlight, MaxWait: 30 * time.Second,
			Share: semel.ShareTenant, MaxResult: 256 << 10, Shields: []semel.Shield{"S1", "S4"}, Effects: []string{"charge", "refund*"},
			ReconcileEvery: time.Minute, RefuseLate: true, OnExpiry: semel.ArchiveExpired, Evidence: semel.EvidenceDurable, PerRecord: semel.Rate{PerSecond: 5, Burst: 10}, PerPrincipal: semel.Rate{PerSecond: 0.5, Burst: 1},
		}
		if err != nil || !reflect.DeepEqual(op, want) {
			t.Errorf("got %+v, %v\nwant %+v", op, err, want)
		}
	})
	t.Run("an operation that the engine refuses is an error", func(t *testing.T) {
		if _, err := (Operation{Name: "a", Class: "I3"}).Policy(); err == nil {
			t.Error("no error")
		}
	})
	t.Run("a route becomes the middleware's route", func(t *testing.T) {
		rt := c.Guarded(c.Routes[0])
		want := semelhttp.Route{
			Operation: semel.Operation{Name: "payments.charge"}, Profile: semelhttp.ACP(), Key: semelhttp.KeyRequired,
			KeyHeader: "Idempotency-Key", Body: semelhttp.BodyJSON, MaxBody: 1 << 20, Streams: semelhttp.Streams{MaxStream: 4 << 20}, Timeout: time.Minute,
			Credential: []string{"cookie:session"}, Anonymous: semelhttp.AnonymousRefuse,
			Methods: []string{"POST", "PUT"}, FingerprintHeaders: []string{"X-Api-Version"}, KeepHeaders: []string{"Request-Signature"}, Origins: []string{"https://shop.example", "http://localhost:5173"}, Answers: judge.Answers{NotExecuted: []string{"418", "599", "200 json:/error/code=THROTTLED"}, Unknown: []string{"500"}, Final: []string{"302 header:Location=/sign-in*"}},
		}
		if !reflect.DeepEqual(rt, want) {
			t.Errorf("got %+v\nwant %+v", rt, want)
		}
	})
	t.Run("the middleware takes every converted route", func(t *testing.T) {
		for _, name := range []string{"full", "minimal", "profile-defaults"} {
			c, _, err := loadCorpus(t, "testdata/good/"+name+".yaml")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range c.Routes {
				policy, err := c.operation(r.Operation).Policy()
				if err != nil || policy.Name != r.Operation || c.Guarded(r).Profile.Name != r.Profile {
					t.Errorf("%s: %+v, %v", r.Match, policy, err)
				}
			}
		}
	})
}

func TestSettings(t *testing.T) {
	c, origins, err := loadCorpus(t, "testdata/good/profile-defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a path selects what is at it and below it", func(t *testing.T) {
		for path, want := range map[string]int{"store": 7, "store.url": 1, "operations[1].per_record": 2, "routes[0]": 42, "routes": 84, "listen.tls": 3, "auth.tokens": 7, "auth.jwt[].leeway": 1} {
			list, err := Settings(c, origins, path)
			if err != nil || len(list) != want {
				t.Errorf("%s has %d settings, want %d; %v", path, len(list), want, err)
			}
		}
	})
	t.Run("a default says what it follows from", func(t *testing.T) {
		list, err := Settings(c, origins, "operations[0].window")
		if err != nil || list[0].Value != "31d" || list[0].Origin.String() != "default (profile adyen)" {
			t.Errorf("%+v, %v", list, err)
		}
	})
	t.Run("a wrong path is answered with a near one", func(t *testing.T) {
		_, err := Settings(c, origins, "limits.conections")
		if err == nil || err.Error() != `there is no setting "limits.conections"; did you mean limits.connections?` {
			t.Error(err)
		}
	})
	t.Run("the table has a line for each setting", func(t *testing.T) {
		var out bytes.Buffer
		list, err := Settings(c, origins, "store")
		if err := errors.Join(err, Explain(&out, list)); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/explain-store.txt", out.String())
	})
}

func TestHostileFiles(t *testing.T) {
	thorough.Alone(t)
	for name, text := range map[string]string{
		"lists in lists in one line":   strings.Repeat("[", 200_000),
		"mappings in mappings":         strings.Repeat("{a: ", 100_000),
		"items of items":               "a: \n " + strings.Repeat("- ", 100_000),
		"complex keys of complex keys": strings.Repeat("? ", 100_000),
		"deep indentation":             deepIndentation(700),
		"a file that is too large":     strings.Repeat("#", maxFile+1),
		"more names than there can be": strings.Repeat("a: 1\n", 150_000),
		"the same in braces":           "a: {" + strings.Repeat("b: 1, ", 150_000) + "}",
		"anchors of anchors":           "a: " + strings.Repeat("&a ", 50_000),
	} {
		t.Run(name+" are refused with a place, and soon", func(t *testing.T) {
			_, _, err := Load(Source{Path: "semel.yaml", Data: []byte(text)})
			errs, ok := errors.AsType[Errors](err)
			if !ok || len(errs) != 1 || errs[0].Line < 1 || errs[0].Column < 1 {
				t.Errorf("%.200v", err)
			}
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestLargeFiles(t *testing.T) {
	thorough.Alone(t)
	t.Run("thousands of routes and operations load", func(t *testing.T) {
		const n = 3000
		var b strings.Builder
		b.WriteString("operations:\n")
		for i := range n {
			fmt.Fprintf(&b, "  # the operation %d\n  - name: op%d\n    lease: 10s\n", i, i)
		}
		b.WriteString("routes:\n")
		for i := range n {
			fmt.Fprintf(&b, "- match: POST /a%d\n  upstream: http://h\n  operation: op%d\n", i, i)
		}
		c, _ := mustLoad(t, Source{Path: "semel.yaml", Data: []byte(b.String())})
		if len(c.Operations) != n || len(c.Routes) != n || c.Routes[n-1].Operation != "op2999" {
			t.Errorf("%d operations and %d routes", len(c.Operations), len(c.Routes))
		}
	})
}

func deepIndentation(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// TestErrorsDontShowVariables: an error shows the reference, never what it stands for,
// nor a part of it.
func TestErrorsDontShowVariables(t *testing.T) {
	secrets := map[string]string{
		"KEY": "s3cr3t-7c40", "COLON": "s3cr3t:7c40", "QUOTE": "s3cr3t\"7c40\\\n", "PORT": "http://s3cr3t.example:7c40s", "SHORT": "7c4", "USER": "https://7c40:s3cr3t@host",
	}
	env := func(name string) (string, bool) { v, ok := secrets[name]; return v, ok }
	settings := map[string]string{
		"listen.address": "listen: {address: '${%s}'}", "listen.hosts[0]": "listen: {hosts: ['${%s}']}", "api": "api: '${%s}'",
		"store.url": "store: {url: '${%s}'}", "store.profile": "store: {profile: '${%s}'}", "limits.rate": "limits: {rate: '${%s}'}", "purge.interval": "purge: {interval: '${%s}'}",
		"routes[0].upstream": "routes: [{match: /, upstream: '${%s}'}]", "routes[0].match": "routes: [{match: '${%s}', upstream: 'http://127.0.0.1:1'}]",
		"routes[0].timeout": "routes: [{match: /, upstream: 'http://127.0.0.1:1', timeout: '${%s}'}]", "routes[0].operation": "routes: [{match: /, upstream: 'http://127.0.0.1:1', operation: '${%s}'}]",
		"dispatch": "dispatch: {destinations: [{name: '${%[1]s}', url: '${%[1]s}'}]}", "auth": "auth: {tokens: [{name: a, sha256: '${%[1]s}', roles: ['${%[1]s}']}], trusted_header: {from: ['${%[1]s}']}}",
		"jwt":        "auth: {jwt: [{issuer: '${%[1]s}', audience: a, algorithms: ['${%[1]s}'], jwks_url: '${%[1]s}'}]}",
		"operations": "operations: [{name: '${%[1]s}', reconcile_url: '${%[1]s}', evidence: '${%[1]s}'}]", "webhooks": "webhooks: [{path: '${%[1]s}', source: '${%[1]s}', upstream: '${%[1]s}'}]",
		"forrst":      "forrst: [{path: '${%[1]s}', upstream: '${%[1]s}', functions: [{name: '${%[1]s}', versions: ['${%[1]s}']}]}]",
		"activitypub": "activitypub: [{actors_url: '${%[1]s}', actors: ['${%[1]s}'], upstream: '${%[1]s}', instances: [{host: '${%[1]s}'}]}]",
		"trusted":     "listen: {trusted_proxies: ['${%s}']}",
	}
	shown := 0
	for what, text := range settings {
		for name := range secrets {
			_, _, err := Load(Source{Path: "semel.yaml", Data: fmt.Appendf(nil, text, name), Env: env})
			if err == nil {
				continue
			}
			said := err.Error()
			if encoded, jerr := json.Marshal(err); jerr == nil {
				said += string(encoded)
			}
			if strings.Contains(said, "s3cr3t") || strings.Contains(said, "7c4") {
				t.Errorf("%s from %s: %s", what, name, said)
			}
			shown++
		}
	}
	if shown < 3*len(settings) {
		t.Errorf("only %d of the values are errors", shown)
	}
}

// Default is the configuration of a service without a file.
func Default() *Config {
	c, _, err := Load(Source{})
	if err != nil {
		panic("config: the defaults are wrong: " + err.Error())
	}
	return c
}
