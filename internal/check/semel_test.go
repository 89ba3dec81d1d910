package check_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(pgtest.Main(m))
}

// stores open the four stores, again after each restart. That in memory outlives its engine.
func stores(t *testing.T) map[string]func(t *testing.T) func() semel.Store {
	return map[string]func(t *testing.T) func() semel.Store{
		"memory": func(t *testing.T) func() semel.Store {
			st := memstore.New()
			t.Cleanup(func() { _ = st.Close() })
			return func() semel.Store { return lasting{st} }
		},
		"embedded": func(t *testing.T) func() semel.Store {
			dir := t.TempDir()
			return func() semel.Store { return opened(t)(pebblestore.Open(dir, nil)) }
		},
		"PostgreSQL": func(t *testing.T) func() semel.Store {
			server := pgtest.Shared(t)
			at := server.URL(server.Database(t))
			return func() semel.Store {
				return opened(t)(pgstore.Open(context.Background(), at, &pgstore.Options{Migrate: true}))
			}
		},
		"Redis": func(t *testing.T) func() semel.Store {
			at := redistest.Start(t, "always").URL()
			return func() semel.Store { return opened(t)(redisstore.Open(context.Background(), at, nil)) }
		},
	}
}

// lasting is a store that stays open.
type lasting struct{ *memstore.Store }

func (lasting) Close() error { return nil }

func opened(t *testing.T) func(semel.Store, error) semel.Store {
	return func(st semel.Store, err error) semel.Store {
		if err != nil {
			t.Error(err)
			return memstore.New()
		}
		return st
	}
}

// door puts an app behind a door of Semel.
type door func(t *testing.T, e *semel.Engine, a *app, profile semelhttp.Profile) (http.Handler, func())

func route(profile semelhttp.Profile) semelhttp.Route {
	return semelhttp.Route{Operation: semel.Operation{Name: "charge", Financial: !profile.NeverKeep5xx}, Profile: profile}
}

func guard(t *testing.T, e *semel.Engine) *semelhttp.Guard {
	g, err := semelhttp.New(e, &semelhttp.Options{TempDir: t.TempDir()})
	if err != nil {
		t.Error(err)
	}
	return g
}

func middleware(t *testing.T, e *semel.Engine, a *app, profile semelhttp.Profile) (http.Handler, func()) {
	g := guard(t, e)
	h, err := g.Handle(route(profile), a)
	if err != nil {
		t.Error(err)
	}
	return h, func() { _ = g.Close(ended()) }
}

func proxy(t *testing.T, e *semel.Engine, a *app, profile semelhttp.Profile) (http.Handler, func()) {
	upstream := httptest.NewServer(a)
	u, err := url.Parse(upstream.URL)
	if err != nil {
		t.Error(err)
	}
	g := guard(t, e)
	p, err := semelproxy.New(g, semelproxy.Options{Upstream: u, Route: route(profile)})
	if err != nil {
		t.Error(err)
	}
	return p, func() {
		p.Close()
		_ = g.Close(ended())
		go upstream.Close() // which waits for its handlers
	}
}

// ended is a context that waits for nothing, as a crash doesn't.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// worker is a service in any language that asks the execution API who may do the work.
type worker struct {
	app    *app
	client *client.Client
}

// recorded is an answer as the worker completes its calls with.
type recorded struct {
	Status               int
	Type, Location, Body string
}

func (w worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	id, ok := new(peer).identity(r)
	if err != nil || !ok || id == "" || len(id) > 1000 {
		http.Error(rw, "a key, please", http.StatusBadRequest)
		return
	}
	call := semel.Call{Operation: "charge", Key: fmt.Sprintf("%x", sha256.Sum256([]byte(id))), Fingerprint: semel.FingerprintOf(semel.SchemeRaw, body)}
	ctx := context.WithoutCancel(r.Context()) // who hangs up leaves no claim without an end
	res, _, err := semel.Do(ctx, w.client, call, func(context.Context, semel.Execution) (recorded, error) {
		rec := httptest.NewRecorder()
		in := r.Clone(ctx)
		in.Body = io.NopCloser(strings.NewReader(string(body)))
		w.app.ServeHTTP(rec, in)
		return recorded{rec.Code, rec.Header().Get("Content-Type"), rec.Header().Get("Location"), rec.Body.String()}, nil
	})
	if err != nil {
		status := http.StatusServiceUnavailable
		if refused, ok := errors.AsType[*semel.Error](err); ok && refused.Code == semel.CodeConflict {
			status = http.StatusUnprocessableEntity
		} else if ok && (refused.Code == semel.CodeInFlight || refused.Code == semel.CodeHeld) {
			status = http.StatusConflict
		}
		http.Error(rw, err.Error(), status)
		return
	}
	rw.Header().Set("Content-Type", res.Type)
	rw.Header().Set("Location", res.Location)
	rw.WriteHeader(res.Status)
	_, _ = io.WriteString(rw, res.Body)
}

func execution(t *testing.T, e *semel.Engine, a *app, _ semelhttp.Profile) (http.Handler, func()) {
	if err := e.Register(semel.Operation{Name: "charge", MaxResult: 1 << 20}); err != nil {
		t.Error(err)
	}
	data, err := api.New(api.Options{Engine: e, Identify: func(*http.Request) (api.Caller, error) {
		return api.Caller{Tenant: "acme", Principal: "shop"}, nil
	}})
	if err != nil {
		t.Error(err)
	}
	srv := httptest.NewServer(data.Data())
	c, err := client.New(srv.URL, nil)
	if err != nil {
		t.Error(err)
	}
	return worker{a, c}, func() {
		_ = c.Close()
		srv.CloseClientConnections()
		go srv.Close()
	}
}

// semelAt serves an app behind a door on a store, and counts its effects.
func semelAt(t *testing.T, open func() semel.Store, d door, profile semelhttp.Profile) (*place, *app) {
	a := new(app)
	return newPlace(t, func() (http.Handler, func()) {
		st := open()
		e, err := semel.New(st, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, end := d(t, e, a, profile)
		return h, func() {
			end()
			_ = e.Close(ended()) // what still runs goes on, as in a node that has only lost its callers
			_ = st.Close()
		}
	}), a
}

// TestSemelIsGreenOnFourStores judges three doors by what a caller sees of them.
func TestSemelIsGreenOnFourStores(t *testing.T) {
	clause.Proves(t, "CORE-SVC.1", "CORE-SVC.2", "CORE-SVC.3", "CORE-ID.2", "CORE-CONC.2")
	for name, prepare := range stores(t) {
		for doorName, d := range map[string]door{"middleware": middleware, "proxy": proxy, "execution API": execution} {
			t.Run(doorName+" on "+name, func(t *testing.T) {
				if name != "memory" || doorName == "execution API" {
					thorough.Only(t, "another store, or door")
				}
				t.Parallel()
				p, a := semelAt(t, prepare(t), d, semelhttp.IETF())
				allGreen(t, p, check.Options{Count: countURL(t, a), Window: 2 * time.Second, Restart: p.restart, Seed: 3})
			})
		}
	}
}

// TestSemelIsGreenByEachContract judges each profile by its own document.
func TestSemelIsGreenByEachContract(t *testing.T) {
	thorough.Only(t, "the same by other documents")
	for _, name := range check.Profiles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			short, _, _ := strings.Cut(name, "-")
			profile, ok := semelhttp.ProfileByName(short)
			if !ok {
				t.Fatalf("Semel has no profile %s", short)
			}
			p, a := semelAt(t, stores(t)["memory"](t), proxy, profile)
			allGreen(t, p, check.Options{Profile: name, Count: countURL(t, a), Window: 2 * time.Second, Restart: p.restart, Seed: 4})
		})
	}
}
