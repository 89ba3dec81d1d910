package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/store"
)

func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
		if err := e.Register(semel.Operation{Name: "charge"}); err != nil {
			t.Fatal(err)
		}
		a, err := New(Options{Engine: e, Observer: NewObserver(e.Internal().Store()), Identify: func(*http.Request) (Caller, error) { return callers["shop"], nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		post := func(path, body, key string) (int, map[string]any) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			w := httptest.NewRecorder()
			a.Data().ServeHTTP(w, r)
			var said map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			return w.Code, said
		}
		return func(key string) doortest.Reply {
			status, said := post("/v1/operations/charge/executions", `{"payload":{"amount":1}}`, key)
			if status == http.StatusCreated {
				if err := work(); err != nil {
					t.Fatal(err)
				}
				status, said = post("/v1/executions/"+said["execution"].(string)+"/complete", `{"result":"done"}`, "")
			}
			code, _ := said["code"].(string)
			body, _ := json.Marshal(said["result"])
			action, _ := said["action"].(string)
			return doortest.Reply{Status: status, Code: code, Action: store.Action(action), Body: string(body)}
		}
	}})
}

func TestCodes(t *testing.T) {
	doortest.Codes(t, nil, func(_ *testing.T, code semel.Code) doortest.Reply {
		p := (&API{}).problemOf(&semel.Error{Code: code})
		return doortest.Reply{Status: p.Status, Code: string(p.Code), Action: p.Action}
	})
}

// The API doesn't end calls that another door began, nor calls of operations that belong
// to one.
func TestOnlyWhatWasBegunHereIsEndedHere(t *testing.T) {
	ends := map[string]string{"complete": `{"result":"forged"}`, "fail": `{"error":{"code":"x"}}`, "reject": `{"error":{"code":"x"}}`, "abort": "", "hold": `{"reason":"x"}`, "abandon": `{"reason":"x"}`, "renew": ""}
	reserved := ""
	w := newWorld(t, func(o *Options) { o.Reserved = func(operation string) bool { return operation == reserved } })
	for _, door := range []string{"http", ""} {
		ans, err := w.engine.Begin(t.Context(), semel.Call{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "of " + door, Door: door})
		if err != nil {
			t.Fatal(err)
		}
		execution := ans.Record.ID.Encode() + "." + strconv.FormatInt(ans.Record.Fence, 10)
		for end, body := range ends {
			w.send("shop", "POST", "/v1/executions/"+execution+"/"+end, body).refused(404, "not_found")
		}
		if err := ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("real")}); err != nil {
			t.Error(err)
		}
	}
	x := w.begin("shop", "charge", "k")
	reserved = "charge"
	for end, body := range ends {
		w.on(x, "shop", end, body).refused(404, "not_found")
	}
	reserved = ""
	w.on(x, "shop", "complete", "").want(200)
}
