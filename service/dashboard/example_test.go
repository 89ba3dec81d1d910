package dashboard_test

import (
	"errors"
	"log"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/service/dashboard"
	"github.com/semelhq/semel/store/memstore"
)

// signedIn is how your program knows its users.
func signedIn(*http.Request) (name string, onCall bool) { return "otto", true }

func ExampleForEngine() {
	store := memstore.New()
	// snippet: Mount
	observer := api.NewObserver(store)
	engine, err := semel.New(store, &semel.Options{Events: observer.Events()})
	if err != nil {
		log.Fatal(err)
	}
	page, err := dashboard.ForEngine(engine, dashboard.Engine{
		Prefix:   "/admin/semel",
		Observer: observer,
		Authorize: func(r *http.Request) (api.Caller, error) {
			name, onCall := signedIn(r)
			if !onCall {
				return api.Caller{}, errors.New("operators only")
			}
			return api.Caller{Principal: name, Role: api.Admin, AllTenants: true}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/admin/semel/", page)
	// end snippet
}
