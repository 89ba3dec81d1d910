package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// slowStore takes a second for each write.
type slowStore struct{ *memstore.Store }

func (s slowStore) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	<-time.After(time.Second)
	return s.Store.Apply(ctx, w)
}

func TestAddedTimeHasNeitherWorkNorWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var decided, ended []time.Duration
		e, err := semel.New(slowStore{memstore.New()}, &semel.Options{
			Operations: []semel.Operation{{Name: "pay", MaxWait: time.Minute}},
			Events: &semel.Events{
				Decided: func(ev semel.Decided) { decided = append(decided, ev.Added) },
				Ended:   func(ev semel.Ended) { ended = append(ended, ev.Added) },
				Unswept: func(semel.Unswept) {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(context.Background())
		call := semel.Call{Principal: "p", Operation: "pay", Key: "k", Wait: time.Minute}
		joined := make(chan error)
		_, err = e.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
			go func() {
				_, err := e.Do(context.Background(), call, nil)
				joined <- err
			}()
			<-time.After(10 * time.Second)
			return semel.Result{}, nil
		})
		if err := <-joined; err != nil {
			t.Error(err)
		}
		if err != nil || len(decided) != 2 || decided[0] != time.Second || decided[1] != 0 || len(ended) != 1 || ended[0] != 2*time.Second {
			t.Errorf("decided %v, ended %v, %v", decided, ended, err)
		}
	})
}
