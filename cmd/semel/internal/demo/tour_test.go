package demo

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
)

// TestTourConfiguration reads what Semel is started with as Semel does.
func TestTourConfiguration(t *testing.T) {
	load := func(t *testing.T, unguarded bool, upstream string, at *tour) *config.Config {
		t.Helper()
		at.opts.Unguarded = unguarded
		if err := at.configure(upstream); err != nil {
			t.Fatal(err)
		}
		t.Chdir(at.dir) // where its files are
		c, _, err := config.Load(config.Source{Path: filepath.Join(at.dir, configName)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("it has all doors, and again when Semel is started again", func(t *testing.T) {
		at := &tour{scene: scene{dir: t.TempDir()}}
		_, at.digest = auth.NewToken()
		load(t, false, "http://127.0.0.1:1", at)
		c := load(t, false, "http://127.0.0.1:2", at)
		if len(c.Routes) != 1 || len(c.Forrst) != 1 || len(c.Webhooks) != 1 || c.Commands.Registry == "" || c.Evidence.KeyFile == "" {
			t.Errorf("configuration = %+v", c)
		}
		if len(c.Operations) != 3 || c.Routes[0].Mode != "enforce" || c.Routes[0].Upstream != "http://127.0.0.1:2" {
			t.Errorf("operations = %+v, routes = %+v", c.Operations, c.Routes)
		}
	})
	t.Run("without its guard it lets everything through", func(t *testing.T) {
		c := load(t, true, "http://127.0.0.1:1", &tour{scene: scene{dir: t.TempDir()}})
		if len(c.Routes) != 1 || c.Routes[0].Mode != "off" || len(c.Forrst)+len(c.Webhooks) != 0 || c.Commands.Registry != "" {
			t.Errorf("configuration = %+v", c)
		}
	})
}

// TestDoorsLeadToTheToyService sends an order by each door with nothing in between: the
// paths are the same, and the toy service charges each copy.
func TestDoorsLeadToTheToyService(t *testing.T) {
	server := httptest.NewServer(newTourProvider(1))
	defer server.Close()
	at := &target{client: newClient(), guard: server.URL, provider: server.URL, unguarded: true}
	names := map[string]bool{}
	for _, d := range doors() {
		t.Run(d.name(), func(t *testing.T) {
			if names[d.slug()] || len(d.name()) > 14 {
				t.Errorf("the name %q is taken or too long", d.name())
			}
			names[d.slug()] = true
			o := order{Order: d.slug() + "-01", Amount: 100, Currency: "EUR"}
			for copy := range 2 {
				got, err := d.deliver(t.Context(), at, o, copy)
				if err != nil || !got.final && d.slug() != "command" { // whose answers only a gateway gives
					t.Errorf("got %+v, %v", got, err)
				}
			}
			ledger, err := at.client.ledger(t.Context(), server.URL, map[string][]string{"order": {o.Order}})
			if err != nil || len(ledger) != 2 || ledger[0].Amount != 100 {
				t.Errorf("ledger = %+v, %v", ledger, err)
			}
		})
	}
}

// TestEntrance: when a process is dead and the next entrance is open, what it had sent is
// in the ledger, and nothing can follow.
func TestEntrance(t *testing.T) {
	server := httptest.NewServer(newTourProvider(1))
	defer server.Close()
	c := newClient()
	next := func() string {
		t.Helper()
		a, err := c.post(t.Context(), server.URL+"/entrances", nil, nil)
		var at stage.Address
		if err != nil || json.Unmarshal([]byte(a.body), &at) != nil || at.URL == "" {
			t.Fatalf("entrance = %+v, %v", a, err)
		}
		return at.URL
	}
	first := next()
	ctx, die := context.WithCancel(t.Context())
	o := order{Order: crashPrefix + "1", Amount: 1, Currency: "EUR"}
	gone := make(chan error, 1)
	go func() {
		_, err := c.charge(ctx, first, "k", o)
		gone <- err
	}()
	if err := c.awaitCharge(t.Context(), server.URL, o.Order); err != nil {
		t.Fatal(err)
	}
	die()
	if err := <-gone; err == nil {
		t.Error("the charge was answered at once")
	}
	second := next()
	if conn, err := net.Dial("tcp", strings.TrimPrefix(first, "http://")); err == nil {
		conn.Close()
		t.Error("the first entrance is still open")
	}
	if a, err := c.charge(t.Context(), second, "k", order{Order: "o2", Amount: 1, Currency: "EUR"}); err != nil || a.status != http.StatusCreated {
		t.Errorf("the second entrance answered %+v, %v", a, err)
	}
}

func TestStormIsTheSameForASeed(t *testing.T) {
	plan := func(seed uint64) []delivery {
		return (&tour{scene: newScene(Options{Seed: seed})}).newStorm(httpDoor{}).all
	}
	if !reflect.DeepEqual(plan(7), plan(7)) || reflect.DeepEqual(plan(7), plan(8)) {
		t.Error("the seed does not choose the storm")
	}
	stay := map[string]int{}
	for _, x := range plan(7) {
		if x.hangUp == 0 {
			stay[x.order.Order]++
		}
	}
	if len(stay) != stormOrders {
		t.Errorf("somebody stays for %d orders of %d", len(stay), stormOrders)
	}
}

// TestFinding: an operator never says of a call that may still charge that it had no
// effect.
func TestFinding(t *testing.T) {
	ledger := []Charge{{ID: "ch_1", Order: "http-01", Reference: "charged"}}
	const quiet = 2
	busy := &apiDoor{}
	busy.begin(order{Order: "1"})
	done := &apiDoor{}
	done.begin(order{Order: "1"})()
	for _, test := range []struct {
		name    string
		door    door
		key     string
		started store.Instant
		outcome store.Disposition
		effect  store.EffectState
	}{
		{"what is in the ledger is completed", httpDoor{}, "charged", 1, semel.DispositionCompleted, store.EffectConfirmed},
		{"also if it was begun by a process that lives", httpDoor{}, "charged", 3, semel.DispositionCompleted, store.EffectConfirmed},
		{"what a dead process began is aborted", httpDoor{}, "order:1", 1, semel.DispositionAborted, store.EffectRefuted},
		{"of what a process began that lives, nothing is known", httpDoor{}, "order:1", 3, 0, ""},
		{"nor of what a worker is at", busy, "order:1", 1, 0, ""},
		{"what a worker left without a charge is aborted", done, "order:1", 3, semel.DispositionAborted, store.EffectRefuted},
	} {
		t.Run(test.name, func(t *testing.T) {
			held := semel.Record{
				ID: semel.ID{Key: test.key}, StartedAt: test.started,
				Effects: []store.EffectRecord{{Name: "settled", State: store.EffectConfirmed}, {Name: "open", State: store.EffectStarted}},
			}
			s := &storm{door: test.door}
			f, known := s.finding(&held, ledger, s.over(&held, quiet))
			if f.Outcome != test.outcome || known != (test.outcome != 0) {
				t.Errorf("finding %+v, %v", f, known)
			}
			if known && (len(f.Effects) != 1 || f.Effects[0].Name != "open" || f.Effects[0].State != test.effect) {
				t.Errorf("effects %+v", f.Effects)
			}
		})
	}
}

// soundDoor is the report of a door without a fault.
func soundDoor() doorReport {
	return doorReport{Door: "HTTP routes", Orders: 16, Sent: 192, HungUp: 40, Answers: 152, Effects: 16, Once: 16, KilledPID: 7}
}

func TestTourJudge(t *testing.T) {
	for _, test := range []struct {
		fault string
		spoil func(*doorReport)
	}{
		{"", func(*doorReport) {}},
		{"charges: 17 instead of 16", func(r *doorReport) { r.Effects = 17 }},
		{"orders charged exactly once: 14 instead of 16", func(r *doorReport) { r.Once = 14 }},
		{"senders that stayed and got an answer: 151 instead of 152", func(r *doorReport) { r.Answers = 151 }},
		{"orders whose senders got different answers: 1 instead of 0", func(r *doorReport) { r.Differing = 1 }},
		{"Semel was not killed", func(r *doorReport) { r.KilledPID = 0 }},
		{"a sender got: held", func(r *doorReport) { r.Trouble = "held" }},
	} {
		t.Run("found: "+test.fault, func(t *testing.T) {
			d := soundDoor()
			test.spoil(&d)
			d.judge()
			want := []string{}
			if test.fault != "" {
				want = append(want, test.fault)
			}
			if d.OK != (test.fault == "") || !slices.Equal(d.Faults, want) {
				t.Errorf("OK = %v, faults = %q", d.OK, d.Faults)
			}
		})
	}
}

// TestCount: a charge too many at one order is found even if another one lacks one.
func TestCount(t *testing.T) {
	s := &storm{orders: []order{{Order: "a"}, {Order: "b"}}}
	for _, seen := range []string{"a1", "a2", "b1"} {
		s.answers.Add(seen[:1], seen[1:])
	}
	s.count([]Charge{{Order: "a"}, {Order: "a"}, {Order: "c"}})
	if r := s.report; r.Effects != 2 || r.Once != 0 || r.Differing != 1 {
		t.Errorf("%+v", r)
	}
}

// newTourProvider is the payment service with the doors.
func newTourProvider(seed uint64) http.Handler {
	p, mux := newProvider(seed)
	for _, d := range doors() {
		d.serve(p, mux)
	}
	mux.Handle("POST /entrances", &entrance{handler: mux})
	return mux
}

// guardProgram names the built program, which takes the place of this one where the tour
// starts its guard.
const guardProgram = "DEMO_TEST_GUARD"

// TestTour plays the storm of each door against Semel as it is built, and without a guard, to
// see that it finds what is wrong.
func TestTour(t *testing.T) {
	thorough.Only(t, "a storm with a kill -9 at each door, which takes half a minute beside building the program")
	exe := filepath.Join(t.TempDir(), "semel.exe")
	if out, err := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", exe, "github.com/semelhq/semel/cmd/semel").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv(guardProgram, exe)
	seed := thorough.Seed()
	for _, unguarded := range []bool{false, true} {
		all, err := runTour(t.Context(), Options{Seed: seed, Unguarded: unguarded, Screen: NewScreen(io.Discard)})
		if err != nil || len(all) != len(doors()) {
			t.Fatalf("seed %d: %d doors, %v", seed, len(all), err)
		}
		killed := map[int]bool{}
		for i, d := range all {
			t.Logf("seed %d, unguarded %v: %+v", seed, unguarded, d)
			switch {
			case unguarded && !slices.Contains(d.Faults, "orders charged exactly once: 0 instead of 32"):
				t.Errorf("%s without its guard: %q", d.Door, d.Faults)
			case !unguarded && (!d.OK || d.HungUp == 0 || d.Requests < d.Sent || killed[d.KilledPID]):
				t.Errorf("%s, the door %d: %q", d.Door, i, d.Faults)
			}
			killed[d.KilledPID] = true
		}
	}
}
