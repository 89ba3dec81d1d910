package evidence_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store/memstore"
)

// An auditor who has nothing but the public key verifies what became of two
// deliveries of one call.
func Example() {
	ctx := context.Background()
	store := memstore.New()
	defer store.Close()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		fmt.Println(err)
		return
	}
	log, err := evidence.New(store, keys, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close(ctx)
	engine, err := semel.New(store, &semel.Options{
		Witness:    log,
		Operations: []semel.Operation{{Name: "payments.charge", Evidence: semel.EvidenceDurable}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close(ctx)
	for range 2 {
		call := semel.Call{Tenant: "shop", Principal: "alice", Operation: "payments.charge", Key: "order-1"}
		if _, err := engine.Do(ctx, call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("receipt 17")}, nil
		}); err != nil {
			fmt.Println(err)
		}
	}
	// A service has Run do this each second.
	if err := log.Integrate(ctx); err != nil {
		fmt.Println(err)
		return
	}

	reader, err := log.Reader(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	var export bytes.Buffer
	if err := reader.Export(ctx, &export, nil); err != nil {
		fmt.Println(err)
		return
	}
	public := keys.Trust().Text()

	trust, err := evidence.ParseTrust(public)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := evidence.Verify(&export, trust, nil)
	fmt.Println(report.Entries, "entries, fault:", report.Finding, err)
	// Output: 3 entries, fault: <nil> <nil>
}
