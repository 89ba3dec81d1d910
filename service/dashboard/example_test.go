package dashboard_test

import (
	"errors"
	"log"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/service/admin"
	"github.com/semelhq/semel/service/dashboard"
	"github.com/semelhq/semel/store/memstore"
)

// signedIn is how your program knows its users.
func signedIn(*http.Request) (name string, onCall bool) { return "otto", true }

func ExampleForEngine() {
	store := memstore.New()
	// snippet: Mount
	observer := dashboard.NewObserver(store)
	engine, err := semel.New(store, &semel.Options{Events: observer.Events()})
	if err != nil {
		log.Fatal(err)
	}
	page, err := dashboard.ForEngine(engine, dashboard.Engine{
		Prefix:   "/admin/semel",
		Observer: observer,
		Authorize: func(r *http.Request) (admin.Caller, error) {
			name, onCall := signedIn(r)
			if !onCall {
				return admin.Caller{}, errors.New("operators only")
			}
			return admin.Caller{Principal: name, Role: admin.Admin, AllTenants: true}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/admin/semel/", page)
	// end snippet
}
