package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/store/memstore"
)

// TestDeliveriesTakeNoQuota: whoever sends many messages keeps nobody's from being delivered, and
// nobody from beginning a call.
func TestDeliveriesTakeNoQuota(t *testing.T) {
	for name, order := range map[string]string{"in any order": "", "in a lane": "lane"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := semel.New(memstore.New(), &semel.Options{
					Quotas:     semel.Quotas{Window: 24 * time.Hour, PrincipalRecords: 2, PrincipalBytes: 100_000, TenantRecords: 3, TenantBytes: 150_000},
					Operations: []semel.Operation{{Name: "op"}},
				})
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]int{}
				d, err := dispatch.New(e, dispatch.Options{Destinations: map[string]dispatch.Destination{"x": {
					Concurrency: 1, Sender: dispatch.SenderFunc(func(_ context.Context, d dispatch.Delivery) error { got[d.Call.Principal]++; return nil }),
				}}})
				if err != nil {
					t.Fatal(err)
				}
				send := func(who string, n int) {
					ans, err := e.Begin(t.Context(), semel.Call{Tenant: "t", Principal: who, Operation: "op", Key: "k"})
					if err != nil || ans.Decision != semel.Execute {
						t.Fatalf("%s begins a call: %s, %v", who, ans.Decision, err)
					}
					for i := range n {
						err = errors.Join(err, ans.Attempt.Send(semel.Message{Name: fmt.Sprint(i), Destination: "x", Order: order, Payload: []byte("1")}))
					}
					if err := errors.Join(err, ans.Attempt.Complete(t.Context(), semel.Result{})); err != nil {
						t.Fatal(err)
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- d.Run(ctx) }()
				send("alice", 100)
				<-time.After(time.Minute)
				send("bob", 1)
				<-time.After(time.Minute)
				stop()
				<-ended
				if err := e.Close(context.Background()); err != nil || got["alice"] != 100 || got["bob"] != 1 {
					t.Errorf("delivered are %v; %v", got, err)
				}
			})
		})
	}
}
