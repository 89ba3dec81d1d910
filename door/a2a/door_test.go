package a2a_test

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/jsonscan"
)

// working is an agent whose one function is a test's.
type working struct {
	agent
	work func() error
}

func (a *working) Execute(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if err := a.work(); err != nil {
			yield(nil, err)
			return
		}
		task := a2a.NewSubmittedTask(x, x.Message)
		task.Status.State = a2a.TaskStateCompleted
		yield(task, nil)
	}
}

// deliver delivers a message under a key to a handler.
func deliver(t *testing.T, h http.Handler, b binding) doortest.Deliver {
	return func(key string) doortest.Reply {
		path, raw := b.body(key, "", "pay", false)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(raw))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := read(t, w.Result())
		if got.code == "" && got.state() == "" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if b == rpc { // which answers with 200 whatever it refuses
			return doortest.Reply{Code: got.code, Action: got.action, Body: string(jsonscan.Member(w.Body.Bytes(), "result"))} // beside it is the delivery's id
		}
		return doortest.Reply{Status: w.Code, Code: got.code, Action: got.action, Body: w.Body.String()}
	}
}

func TestDoor(t *testing.T) {
	t.Run("wrapped", func(t *testing.T) {
		doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
			a := &working{work: work}
			handler, err := once.Wrap(e, a2asrv.NewHandler(a, a2asrv.WithCallInterceptors(signedIn{})), once.Options{Operation: operation, Wait: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return deliver(t, a.serve(handler), rpc)
		}})
	})
	for _, b := range []binding{rpc, rest} {
		t.Run("gateway, "+b.name, func(t *testing.T) {
			doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
				a := &working{work: work}
				upstream, _ := url.Parse(listen(t, a.serve(a2asrv.NewHandler(a))))
				guard, err := semelhttp.New(e, &semelhttp.Options{Identity: func(*http.Request) (string, string, error) { return "", "tester", nil }})
				if err != nil {
					t.Fatal(err)
				}
				g, err := once.NewGateway(guard, once.GatewayOptions{Operation: operation, Upstream: upstream, Wait: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				return deliver(t, g, b)
			}})
		})
	}
	for rpc, name := range map[bool]string{true: "JSON-RPC", false: "REST"} {
		t.Run("every refusal has an error over "+name, func(t *testing.T) {
			doortest.Codes(t, nil, func(t *testing.T, code semel.Code) doortest.Reply {
				w := httptest.NewRecorder()
				once.Refuse(w, code, rpc)
				got := read(t, w.Result())
				reply := doortest.Reply{Status: w.Code, Code: got.code, Action: got.action}
				if rpc {
					reply.Status = 0
				}
				return reply
			})
		})
	}
	t.Run("every refusal has an error of the SDK", func(t *testing.T) {
		for _, m := range door.Meanings() {
			if err := once.Refusal(m.Code); err == nil || err.Error() == "" {
				t.Error(m.Code)
			}
		}
	})
}
