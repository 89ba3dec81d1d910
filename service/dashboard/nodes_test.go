package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/service/admin"
	"github.com/semelhq/semel/service/dashboard"
	"github.com/semelhq/semel/store/memstore"
)

// nodeOf is a process on a store, with its dashboard.
func nodeOf(t *testing.T, st semel.Store, name string, caller admin.Caller) (*semel.Engine, *dashboard.Dashboard) {
	t.Helper()
	observer, figures := dashboard.NewObserver(st), dashboard.NewFigures(st)
	events, counted := observer.Events(), figures.Events()
	decided := events.Decided
	events.Decided = func(e semel.Decided) { decided(e); counted.Decided(e) }
	events.Unswept = func(semel.Unswept) {}
	engine, err := semel.New(st, &semel.Options{Node: name, Operations: []semel.Operation{{Name: "pay"}}, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { figures.Run(ctx) })
	t.Cleanup(func() { cancel(); work.Wait() })
	page, err := dashboard.ForEngine(engine, dashboard.Engine{
		Observer: observer, Figures: figures, Version: "v1.2.3 of " + name,
		Authorize: func(*http.Request) (admin.Caller, error) { return caller, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return engine, page
}

func pay(t *testing.T, engine *semel.Engine, tenant, key string) {
	t.Helper()
	_, err := engine.Do(t.Context(), semel.Call{Tenant: tenant, Principal: "p", Operation: "pay", Key: key, Door: "http"},
		func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: json.RawMessage("1")}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTwoNodesOfAStore: the page lists both, and names the node where something is of one of them,
// also when another answers meanwhile.
func TestTwoNodesOfAStore(t *testing.T) {
	clause.Proves(t, "MAP-MON.5")
	st := memstore.New()
	root := admin.Caller{Principal: "otto", Role: admin.Admin, AllTenants: true}
	a, pageA := nodeOf(t, st, "a-1", root)
	b, pageB := nodeOf(t, st, "b-1", root)
	pay(t, a, "acme", "on-a")
	pay(t, b, "acme", "on-b")
	pay(t, b, "zeta", "too-on-b")
	var answers atomic.Pointer[dashboard.Dashboard]
	answers.Store(pageA)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answers.Load().ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	tb := open(t, server.URL)
	tb.wait("document.querySelector('h1')?.textContent === 'Overview over all nodes'")
	tb.visit("#/nodes")
	tb.wait("document.querySelectorAll('main tbody tr').length === 3")
	row := func(name string) string {
		return eval[string](tb, "[...[...document.querySelectorAll('main tbody tr')].find((r) => r.innerText.includes('"+name+"')).cells].map((c) => c.innerText.trim()).filter((_, i, all) => i < 2 || i > all.length - 4).join('|')")
	}
	tb.wait("[...document.querySelectorAll('main tbody tr')].pop().innerText.includes('3')")
	for name, want := range map[string]string{"a-1": "a-1 this page|v1.2.3 of a-1|1|0|0", "b-1": "b-1|v1.2.3 of b-1|2|0|0", "All": "All, with those that have ended|3|0|0"} {
		if got := row(name); got != want {
			t.Errorf("the row is %q, want %q", got, want)
		}
	}
	tb.shows("2 versions run side by side")
	tb.picture(screenshots(t), "nodes-two")
	tb.visit("#/tail")
	tb.wait("/^Live tail of this node \\(a-1\\), since \\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('h1')?.textContent)")
	tb.shows("on-a")
	answers.Store(pageB)
	server.CloseClientConnections()
	tb.wait("document.querySelector('h1')?.textContent.startsWith('Live tail of this node (b-1), since')")
	tb.shows("too-on-b")
	if strings.Contains(tb.text(), "on-a") {
		t.Errorf("events of another node are among those of this one:\n%s", tb.text())
	}
	tb.visit("#/held")
	tb.shows("of this node (b-1), since")
}

// TestTheOverviewOfATenant has that tenant's figures, and says so.
func TestTheOverviewOfATenant(t *testing.T) {
	st := memstore.New()
	a, page := nodeOf(t, st, "a-1", admin.Caller{Principal: "vera", Tenant: "acme", Role: admin.Viewer})
	b, _ := nodeOf(t, st, "b-1", admin.Caller{})
	for range 3 {
		pay(t, a, "acme", "mine")
		pay(t, b, "acme", "mine")
		pay(t, b, "zeta", "theirs")
	}
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	tb := open(t, server.URL)
	tb.wait("document.querySelector('h1')?.textContent === 'Overview over all nodes, of tenant acme'")
	tb.wait("document.querySelector('.tile.green .big')?.textContent === '5'")
	tb.shows("Added latency")
	tb.shows("mine")
	if text := tb.text(); strings.Contains(text, "theirs") || strings.Contains(text, "These are the last") {
		t.Errorf("it shows\n%s", text)
	}
}
