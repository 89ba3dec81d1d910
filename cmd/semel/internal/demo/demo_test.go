package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
)

// TestMain lets this test binary be a child of itself, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ProviderCommand {
		if err := serve(context.Background(), newTourProvider(1), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if exe := os.Getenv(guardProgram); len(os.Args) > 1 && os.Args[1] == "serve" {
		fmt.Fprintln(os.Stderr, syscall.Exec(exe, append([]string{exe}, os.Args[1:]...), os.Environ()))
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == "broken" {
		fmt.Fprintln(os.Stderr, "there is no room")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestProvider(t *testing.T) {
	_, handler := newProvider(1)
	server := httptest.NewServer(handler)
	defer server.Close()
	c := newClient()
	o := order{Order: "o1", Amount: 100, Currency: "EUR"}
	t.Run("it charges as often as it is asked to, whatever the key", func(t *testing.T) {
		for range 3 {
			a, err := c.charge(t.Context(), server.URL, "key-1", o)
			if err != nil || a.status != http.StatusCreated {
				t.Fatal(a, err)
			}
		}
		got, err := c.ledger(t.Context(), server.URL, map[string][]string{"reference": {"key-1"}})
		if err != nil || len(got) != 3 || got[0] != (Charge{ID: "ch_0001", Order: "o1", Amount: 100, Currency: "EUR", Reference: "key-1"}) {
			t.Errorf("ledger = %v, %v", got, err)
		}
	})
	t.Run("the ledger can be asked for one order", func(t *testing.T) {
		got, err := c.ledger(t.Context(), server.URL, map[string][]string{"order": {"o9"}})
		if err != nil || len(got) != 0 {
			t.Errorf("ledger = %v, %v", got, err)
		}
	})
	t.Run("what it says of a charge is the answer that was given, byte for byte", func(t *testing.T) {
		a, err := c.charge(t.Context(), server.URL, "key-2", order{Order: "o2", Amount: 5, Currency: "EUR"})
		if err != nil || a.status != http.StatusCreated {
			t.Fatal(a, err)
		}
		var f semelproxy.Finding
		if err := c.get(t.Context(), server.URL+"/outcome?key=key-2", &f); err != nil {
			t.Fatal(err)
		}
		if f.Outcome != "completed" || f.Status != a.status || string(f.Body) != a.body || f.Headers.Get("Content-Type") != "application/json" {
			t.Errorf("found %+v with body %q, answered %d %q", f, f.Body, a.status, a.body)
		}
	})
	t.Run("of a charge that is not in the ledger it says that it does not know", func(t *testing.T) {
		for _, query := range []string{"?key=other", "?key=", ""} {
			var f semelproxy.Finding
			if err := c.get(t.Context(), server.URL+"/outcome"+query, &f); err != nil || f.Outcome != "unknown" || f.Body != nil {
				t.Errorf("%q: %+v, %v", query, f, err)
			}
		}
	})
	t.Run("an order that lacks something is not charged", func(t *testing.T) {
		a, err := c.charge(t.Context(), server.URL, "", order{Order: "o3", Currency: "EUR"})
		if err != nil || a.status != http.StatusBadRequest {
			t.Fatal(a, err)
		}
		if got, err := c.ledger(t.Context(), server.URL, map[string][]string{"order": {"o3"}}); err != nil || len(got) != 0 {
			t.Errorf("ledger = %v, %v", got, err)
		}
	})
}

// TestClientSendsOnce breaks a kept connection after the request has arrived,
// which makes net/http send a request with an idempotency key again unless it
// is kept from doing so.
func TestClientSendsOnce(t *testing.T) {
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, "[]")
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		arrived.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	c := newClient()
	if _, err := c.ledger(t.Context(), server.URL, nil); err != nil {
		t.Fatal(err) // leaves a connection to reuse
	}
	if _, err := c.charge(t.Context(), server.URL, "key", order{Order: "o", Amount: 1, Currency: "EUR"}); err == nil {
		t.Error("the broken connection is no error")
	}
	if n := arrived.Load(); n != 1 {
		t.Errorf("the request arrived %d times", n)
	}
}

// TestConfiguration reads what the guard is started with as the guard does.
func TestConfiguration(t *testing.T) {
	for _, test := range []struct {
		unguarded bool
		mode      string
	}{{false, "enforce"}, {true, "off"}} {
		t.Run("the guard is told the mode "+test.mode, func(t *testing.T) {
			dir := t.TempDir()
			if err := writeConfiguration(dir, "http://127.0.0.1:1", auth.HashToken("semel_test"), test.unguarded); err != nil {
				t.Fatal(err)
			}
			c, _, err := config.Load(config.Source{Path: filepath.Join(dir, configName)})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Routes) != 3 || c.Routes[1].Mode != test.mode || c.Routes[0].Mode != test.mode || c.Routes[0].Upstream != "http://127.0.0.1:1" {
				t.Errorf("routes = %+v", c.Routes)
			}
			if len(c.Operations) != 4 || c.Operations[0].OnAbandoned != semel.HoldAbandoned || c.Operations[0].ReconcileURL != "http://127.0.0.1:1/outcome" {
				t.Errorf("operations = %+v", c.Operations)
			}
			for _, address := range []string{c.Listen.Address, c.Admin.Address} {
				if address != "127.0.0.1:0" {
					t.Errorf("it listens on %s", address)
				}
			}
		})
	}
}

func TestChild(t *testing.T) {
	t.Run("a child that can't start tells why", func(t *testing.T) {
		_, err := startChild(t.Context(), "", "broken")
		if err == nil || !strings.Contains(err.Error(), " broken: ") || !strings.Contains(err.Error(), "there is no room") {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("a child does not get what configures another service", func(t *testing.T) {
		t.Setenv("SEMEL_STORE_URL", "pebble:elsewhere")
		t.Setenv("NOTIFY_SOCKET", "elsewhere")
		t.Setenv("DEMO_TEST", "kept")
		env := environment()
		if !slices.Contains(env, "DEMO_TEST=kept") || slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, "elsewhere") }) {
			t.Errorf("environment = %q", env)
		}
	})
	t.Run("a child ends when it is stopped, and when its standard input ends", func(t *testing.T) {
		c, err := startChild(t.Context(), "", ProviderCommand)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	t.Run("a killed child is gone when kill returns", func(t *testing.T) {
		c, err := startChild(t.Context(), "", ProviderCommand)
		if err != nil {
			t.Fatal(err)
		}
		c.Kill()
		if conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://")); err == nil {
			conn.Close()
			t.Error("it still accepts connections")
		}
	})
}

// sound is a report without a fault.
func sound() Report {
	var r Report
	r.Control = Burst{Sent: 500, Effects: 500}
	r.Protected = Burst{Sent: 500, Effects: 20, Executed: 20, Replayed: 480}
	r.Conflict = Conflict{Status: 422, Effects: 1}
	r.LostResponse = Recovery{Effects: 1, Replayed: true}
	r.Crash = Recovery{Effects: 1, Replayed: true, Attempts: 1}
	return r
}

func TestJudge(t *testing.T) {
	t.Run("a sound report has no fault", func(t *testing.T) {
		r := sound()
		if r.judge(); !r.OK || len(r.Faults) != 0 {
			t.Errorf("faults = %q", r.Faults)
		}
	})
	for _, test := range []struct {
		fault string
		spoil func(*Report)
	}{
		{"charges without a guard, one for each copy: 499 instead of 500", func(r *Report) { r.Control.Effects = 499 }},
		{"charges behind the guard: 21 instead of 20", func(r *Report) { r.Protected.Effects = 21 }},
		{"charges behind the guard: 19 instead of 20", func(r *Report) { r.Protected.Effects = 19 }},
		{"copies replayed behind the guard: 479 instead of 480", func(r *Report) { r.Protected.Replayed = 479 }},
		{"copies without a successful answer behind the guard: 1 instead of 0", func(r *Report) { r.Protected.Failed = 1 }},
		{"orders whose copies got different answers behind the guard: 1 instead of 0", func(r *Report) { r.Protected.Differing = 1 }},
		{"status for a changed amount: 201 instead of 422", func(r *Report) { r.Conflict.Status = 201 }},
		{"charges after the changed amount: 2 instead of 1", func(r *Report) { r.Conflict.Effects = 2 }},
		{"charges after the lost response: 2 instead of 1", func(r *Report) { r.LostResponse.Effects = 2 }},
		{"the retry after the lost response got no stored answer", func(r *Report) { r.LostResponse.Replayed = false }},
		{"charges after the crash: 0 instead of 1", func(r *Report) { r.Crash.Effects = 0 }},
		{"attempts at the charge that was under way in the crash: 2 instead of 1", func(r *Report) { r.Crash.Attempts = 2 }},
		{"the last retry after the crash got no stored answer", func(r *Report) { r.Crash.Replayed = false }},
	} {
		t.Run("found: "+test.fault, func(t *testing.T) {
			r := sound()
			test.spoil(&r)
			if r.judge(); r.OK || !slices.Equal(r.Faults, []string{test.fault}) {
				t.Errorf("OK = %v, faults = %q", r.OK, r.Faults)
			}
		})
	}
}

func TestRecoverySeen(t *testing.T) {
	var r Recovery
	for _, a := range []answer{
		{status: 409, code: "in_flight"}, {status: 409, code: "in_flight"}, {status: 409, code: "held"},
		{status: 201}, {status: 201, replayed: true},
	} {
		r.see(a)
	}
	if want := "in_flight, held, 201, replay"; r.path() != want || r.Sent != 5 {
		t.Errorf("path = %q after %d, want %q", r.path(), r.Sent, want)
	}
	var words []string
	for _, s := range r.Seen {
		words = append(words, s.String())
	}
	want := []string{"409 Conflict, in_flight (2 times)", "409 Conflict, held", "201 Created, executed", "201 Created, replayed"}
	if !reflect.DeepEqual(words, want) {
		t.Errorf("seen = %q, want %q", words, want)
	}
}

func TestServeProvider(t *testing.T) {
	t.Cleanup(func() { signal.Reset(os.Interrupt) })
	stdin, parent := io.Pipe()
	out, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeProvider(t.Context(), 1, stdin, stdout) }()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var a stage.Address
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(a.URL + "/charges")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	parent.Close()
	if err := <-ended; err != nil { // a provider that goes on keeps the test until its time is over
		t.Error(err)
	}
}
