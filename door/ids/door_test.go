package ids_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{
		Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
			g := refunds(t, e, work)
			return func(key string) doortest.Reply {
				body := fmt.Sprintf(`{"tenant_id":"acme","actor_id":"alice","command_id":%q,"intent":{"entity":"refund","action":"create"},"args":{"payment":%q}}`, key, key)
				w := httptest.NewRecorder()
				g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/commands", strings.NewReader(body)))
				return commandReply(t, w)
			}
		},
		Witness: func(t *testing.T, st semel.Store) semel.Witness {
			keys, err := evidence.GenerateKeys("example.com/shop")
			if err != nil {
				t.Fatal(err)
			}
			log, err := evidence.New(st, keys, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = log.Close(context.WithoutCancel(t.Context())) })
			return log
		},
		Differs: map[semel.Code]doortest.Reply{
			semel.CodeConflict: {Status: http.StatusUnprocessableEntity, Code: string(ids.ReasonKey)},
			semel.CodeInFlight: {Status: http.StatusAccepted, Code: string(ids.StatusProcessing)},
			semel.CodeHeld:     {Status: http.StatusAccepted, Code: ids.ReasonUnknownOutcome},
		},
		Never: map[semel.Decision]string{semel.TooLate: "keys are digests, which say nothing of when a command was first sent"},
	})
}

// refunds is a gateway with one command.
func refunds(t *testing.T, e *semel.Engine, work func() error) *ids.Gateway {
	t.Helper()
	b := &ids.Bindings{Handlers: map[string]ids.Handler{"refund": func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
		if err := work(); err != nil {
			return semel.Result{}, err
		}
		return ids.Done("Refunded", nil)
	}}}
	registry, err := ids.Load([]byte(`{version: 1, commands: [{entity: refund, action: create, handler: {func: refund}}]}`), ids.LoadOptions{Bindings: b})
	if err != nil {
		t.Fatal(err)
	}
	g, err := ids.New(e, ids.Options{Registry: registry, Bindings: b, Identify: func(*http.Request) (ids.Caller, error) {
		return ids.Caller{Tenant: "acme", Principal: "alice"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// commandReply is what the sender of a command is told: the code of a problem, or why a
// command has no outcome.
func commandReply(t *testing.T, w *httptest.ResponseRecorder) doortest.Reply {
	t.Helper()
	var said struct {
		Code, Reason string
		Action       store.Action
		Status       any
	}
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	reply := doortest.Reply{Status: w.Code, Code: cmp.Or(said.Code, said.Reason), Action: said.Action, Body: string(jsonscan.Without(bytes.Clone(w.Body.Bytes()), "decision"))} // which is the delivery's
	if reply.Code == "" && said.Status != string(ids.StatusExecuted) {
		reply.Code = fmt.Sprint(said.Status)
	}
	return reply
}
