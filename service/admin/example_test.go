package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/service/admin"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// A held call of any tenant is there for an operator of all tenants.
func Example() {
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "charge"}}})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	_, _ = engine.Do(ctx, semel.Call{Tenant: "acme", Operation: "charge", Key: "order-1"}, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{}, semel.Unknown(errors.New("the bank did not answer"))
	})

	h, err := admin.Handler(engine, admin.Options{
		Prefix: "/admin/semel",
		Authorize: func(r *http.Request) (admin.Caller, error) {
			if r.Header.Get("Authorization") != "Bearer on-call" { // ask your own sessions
				return admin.Caller{}, errors.New("operators only")
			}
			return admin.Caller{Principal: "olga", Role: admin.Admin, AllTenants: true}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	web := httptest.NewServer(h)
	defer web.Close()

	operator, err := client.New(web.URL+"/admin/semel", &client.Options{Token: "on-call"})
	if err != nil {
		panic(err)
	}
	defer operator.Close()
	page, err := operator.Search(ctx, store.Query{Held: true})
	if err != nil {
		panic(err)
	}
	for _, rec := range page.Records {
		fmt.Println(rec.ID.Tenant, rec.ID.Key, rec.HeldReason)
	}
	// Output: acme order-1 the bank did not answer
}
