package a2a_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
)

// endless is an agent that leaves streams open after a task has ended, as the SDK does for
// who comes while it ends.
type endless struct{ a2asrv.RequestHandler }

func (h endless) SubscribeToTask(ctx context.Context, req *a2a.SubscribeToTaskRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		task, err := h.GetTask(ctx, &a2a.GetTaskRequest{ID: req.ID, Tenant: req.Tenant})
		if yield(task, err) {
			<-ctx.Done()
		}
	}
}

// A duplicate that follows a task gets the state that ends it, and the end of the stream.
func TestAStreamThatStaysOpen(t *testing.T) {
	forms := map[string]func(*testing.T, *agent, a2asrv.RequestHandler) *world{
		"wrapped": func(t *testing.T, a *agent, h a2asrv.RequestHandler) *world {
			w := &world{t: t, Service: semelhttptest.New(t, nil)}
			handler, err := once.Wrap(w.Engine, h, once.Options{Operation: operation, Wait: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			w.url = listen(t, a.serve(handler))
			return w
		},
		"gateway": func(t *testing.T, a *agent, h a2asrv.RequestHandler) *world {
			return gateway(t, a.serve(h), once.GatewayOptions{Operation: operation, Wait: time.Minute})
		},
	}
	for name, open := range forms {
		t.Run(name, func(t *testing.T) {
			a := newAgent()
			w := open(t, a, endless{a2asrv.NewHandler(a, a2asrv.WithCallInterceptors(signedIn{}))})
			for _, what := range []string{"pay", "ask"} {
				first := w.send(all[0], "m-"+what, "", what, true)
				if again := w.send(all[0], "m-"+what, "", what, true); again.task() != first.task() || again.state() != first.state() {
					t.Errorf("%s: the task %s was %s, and then %s %s", what, first.task(), first.state(), again.task(), again.state())
				}
			}
		})
	}
}
