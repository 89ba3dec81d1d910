package others

import (
	"net/http"
	"os"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/pebblestore"
)

// route is a charge, as docs/library.md has it.
var route = semelhttp.Route{Operation: semel.Operation{Name: "charge", Financial: true}}

// newEngine opens the embedded store.
func newEngine() *semel.Engine {
	store, err := pebblestore.Open(os.Getenv("STORE"), nil)
	must(err)
	engine, err := semel.New(store, nil)
	must(err)
	return engine
}

// serveMiddleware guards the shop's handlers.
func serveMiddleware() {
	guard, err := semelhttp.New(newEngine(), nil)
	must(err)
	mux := http.NewServeMux()
	for path, name := range map[string]string{"POST /charges": "charge", "POST /refunds": "refund"} {
		r := route
		r.Operation.Name = name
		h, err := guard.Handle(r, http.HandlerFunc(shop))
		must(err)
		mux.Handle(path, h)
	}
	must(http.Serve(listen(), mux))
}
