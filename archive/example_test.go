package archive_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/archive"
	"github.com/semelhq/semel/store/memstore"
)

// An engine hands its records over before it deletes them.
func Example() {
	temp, err := os.MkdirTemp("", "archive")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(temp)
	dir := filepath.Join(temp, "archive")
	kept, err := archive.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer kept.Close()
	store := memstore.New()
	defer store.Close()
	engine, err := semel.New(store, &semel.Options{
		Operations: []semel.Operation{{Name: "mail.send", Window: time.Hour, OnExpiry: semel.ArchiveExpired}},
		Archive:    kept.Write,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer engine.Close(ctx)

	call := semel.Call{Operation: "mail.send", Key: "welcome/42"}
	_, err = engine.Do(ctx, call, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{Data: []byte("sent")}, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	store.Advance(time.Hour)
	swept, err := engine.Sweep(ctx)
	fmt.Println("purged:", swept.Purged, err)

	err = archive.Read(dir, func(rec semel.Record) error {
		fmt.Println("archived:", rec.ID.Key, rec.State, string(rec.Result.Data))
		return nil
	})
	fmt.Println(err, archive.Verify(dir))
	// Output:
	// purged: 1 <nil>
	// archived: welcome/42 completed sent
	// <nil> <nil>
}
