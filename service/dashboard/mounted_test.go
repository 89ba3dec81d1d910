package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/service/dashboard"
	"github.com/semelhq/semel/store/memstore"
)

// program has an engine of its own, with an operation that can be undone, and mounts the
// dashboard.
type program struct {
	*semel.Engine
	page      string
	cancelled int // orders
}

func newProgram(t *testing.T, withEvents, withFigures bool) *program {
	t.Helper()
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	p := &program{}
	shop := []semel.Operation{{Name: "orders.cancel"}, {
		Name: "orders.create", Compensation: "orders.cancel",
		Compensate: func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
			p.cancelled++
			return semel.Result{Data: json.RawMessage(`{"cancelled":true}`)}, nil
		},
	}}
	opts, mount := &semel.Options{Operations: shop}, dashboard.Engine{Prefix: "/admin/semel", Name: "shop"}
	if withEvents {
		mount.Observer = api.NewObserver(store)
		opts.Events = mount.Observer.Events()
	}
	if withFigures {
		mount.Figures = figures.New(store, nil)
		opts.Events = mount.Figures.Events()
	}
	var err error
	if p.Engine, err = semel.New(store, opts); err != nil {
		t.Fatal(err)
	}
	if withFigures {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { mount.Figures.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
	}
	mount.Authorize = func(*http.Request) (api.Caller, error) {
		return api.Caller{Principal: "otto", Role: api.Admin, AllTenants: true}, nil
	}
	page, err := dashboard.ForEngine(p.Engine, mount)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/semel/", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.page = server.URL + "/admin/semel"
	return p
}

// order runs a call of the program.
func (p *program) order(t *testing.T, key string) {
	t.Helper()
	_, err := p.Do(t.Context(), semel.Call{Tenant: "acme", Operation: "orders.create", Key: key}, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{Data: json.RawMessage(`{"order":1}`)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUndo: an operator undoes a call in the dashboard of a program, once, and sees who did
// and why.
func TestUndo(t *testing.T) {
	p := newProgram(t, true, false)
	p.order(t, "order-1")
	tb := open(t, p.page)
	tb.visit("#/find/order-1")
	tb.click("button", "Undo")
	tb.shows("runs once")
	tb.fill("textarea[name=reason]", "the customer changed their mind")
	tb.accessible(axe(t), "undo")
	tb.click("dialog button", "Undo")
	tb.wait("!document.querySelector('dialog')")
	tb.shows("Executed once, and undone later")
	tb.shows("Compensation by orders.cancel: done")
	tb.shows("the customer changed their mind")
	if p.cancelled != 1 {
		t.Errorf("it was undone %d times", p.cancelled)
	}
	tb.wait("![...document.querySelectorAll('button')].some((b) => b.textContent === 'Undo')")
	tb.click(".lane a .bar", "orders.cancel")
	tb.shows("the call that it undoes")
	tb.click("a", "the call that it undoes")
	tb.shows("undone later")
}

// TestFiguresOfAProgram: the overview of a program has figures over all nodes, or those of
// this node's events, or says that there are none.
func TestFiguresOfAProgram(t *testing.T) {
	for _, test := range []struct {
		name            string
		events, figures bool
		shows, lacks    string
	}{
		{"figures", true, true, "with a key, over all nodes", "These are the last"},
		{"events", true, false, "These are the last", "with a key, over all nodes"},
		{"neither", false, false, "This program gives its dashboard no figures", "No delivery yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProgram(t, test.events, test.figures)
			p.order(t, "order-1")
			p.order(t, "order-1")
			tb := open(t, p.page)
			tb.shows(test.shows)
			if test.events {
				tb.wait("document.querySelector('.tile.green .big')?.textContent === '1'") // duplicate
			}
			if text := tb.text(); strings.Contains(strings.Split(text, "\nThese figures")[0], test.lacks) {
				t.Errorf("it shows %q:\n%s", test.lacks, text)
			}
			tb.picture(screenshots(t), "program-"+test.name)
		})
	}
}
