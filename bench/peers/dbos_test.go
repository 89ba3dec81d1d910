package peers

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// workflows runs a workflow under an id: DBOS records that it was started before it
// runs, and its result, as an engine's call does.
func workflows(b *testing.B, url string) do {
	c, err := dbos.NewContext(b.Context(), dbos.Config{
		AppName: "peers", DatabaseURL: url, ApplicationVersion: "1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	work := func(dbos.Context, string) (string, error) { return answer, nil }
	dbos.RegisterWorkflow(c, work)
	if err := dbos.Launch(c); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := dbos.Shutdown(c, 10*time.Second); err != nil {
			b.Error(err)
		}
	})
	return func(_ context.Context, key string, replayed bool) error {
		handle, err := dbos.RunWorkflow(c, work, body, dbos.WithWorkflowID(key))
		if err != nil {
			return err
		}
		got, err := handle.GetResult()
		if err != nil {
			return err
		}
		return check(replayed, replayed, got) // nothing tells that it is a replay
	}
}
