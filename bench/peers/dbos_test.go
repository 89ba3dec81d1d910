package peers

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/semelhq/semel/bench/internal/benchstore"
)

// workflows runs a workflow under an id: DBOS records that it was started before it
// runs, and its result, as an engine's call does.
func workflows(t *testing.T, url string) benchstore.Do {
	c, err := dbos.NewContext(t.Context(), dbos.Config{
		AppName: "peers", DatabaseURL: url, ApplicationVersion: "1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	work := func(dbos.Context, string) (string, error) { return answer, nil }
	dbos.RegisterWorkflow(c, work)
	if err := dbos.Launch(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dbos.Shutdown(c, 10*time.Second); err != nil {
			t.Error(err)
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
