package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/limit"
	"github.com/semelhq/semel/store/memstore"
)

// counts are a metric for each door and decision, and for each door and refusal.
type counts struct {
	mu        sync.Mutex
	decisions map[string]int
	refusals  map[string]int
	troubles  map[string]int
}

// events are all that a program gives its engine for it, whatever doors it has.
func (c *counts) events() *semel.Events {
	c.decisions, c.refusals, c.troubles = map[string]int{}, map[string]int{}, map[string]int{}
	count := func(m map[string]int, door, what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		m[strings.TrimSpace(door+" "+what)]++
	}
	return &semel.Events{
		Decided: func(e semel.Decided) { count(c.decisions, e.Door, string(e.Decision)) },
		Answered: func(e semel.Delivered) {
			if e.Code != "" {
				count(c.refusals, e.Door, string(e.Code))
			}
		},
		Troubled: func(e semel.Troubled) { count(c.troubles, e.Door, "") },
	}
}

// One Events value sees the decisions and the refusals of all doors.
func TestAMetricForEachDoorIsOneFile(t *testing.T) {
	var c counts
	engine, err := semel.New(memstore.New(), &semel.Options{Events: c.events()})
	if err != nil {
		t.Fatal(err)
	}
	mux := mountDoors(t, engine)
	post := func(path, body string, header ...string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader([]byte(body)))
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	alice := []string{"Authorization", "Bearer alice", "Content-Type", "application/json"}
	keyed := append(alice, "Idempotency-Key", "k")
	post("/pay", `1`, keyed...)
	post("/pay", `1`, keyed...)
	post("/pay", `2`, keyed...)
	post("/pay", `1`, alice...)
	post("/pay", `1`, keyed[2:]...)

	const call = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"charge","version":"1.0.0","arguments":{"n":%d}},` +
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]}`
	post("/forrst", fmt.Sprintf(call, 1), alice...)
	post("/forrst", fmt.Sprintf(call, 1), alice...)
	post("/forrst", fmt.Sprintf(call, 2), alice...)
	post("/forrst", fmt.Sprintf(call, 1), alice[2:]...)
	post("/forrst", `{`, alice...)
	post("/forrst", strings.Replace(fmt.Sprintf(call, 3), `"k"`, `"fails"`, 1), alice...)

	const secret = "a webhook's secret"
	event := func(n int) (string, []string) {
		body := fmt.Sprintf(`{"n":%d}`, n)
		return body, signedAs(t, "github", secret, body, "X-GitHub-Delivery", "d1", "X-GitHub-Event", "ping")
	}
	body, signed := event(1)
	post("/hook", body, signed...)
	post("/hook", body, signed...)
	post("/hook", `{"n":3}`, signed...)
	body, signed = event(2)
	post("/hook", body, signed...)

	begin := func(body string, header ...string) {
		t.Helper()
		post("/v1/operations/run/executions", body, header...)
	}
	begin(`{"payload":1}`, keyed...)
	begin(`{"payload":2}`, keyed...)
	begin(`{"payload":1}`, alice...)
	begin(`{"payload":1}`, keyed[2:]...)
	begin(`{"payload":1,"unknown":1}`, keyed...)
	begin(`{`, keyed...)
	begin(`{}`, append(keyed, "Content-Type", "")...)
	begin(`{"key":"other"}`, keyed...)
	post("/v1/batch", `{"items":[{},{"begin":{"operation":"run","key":"b"}}]}`, alice...)
	post("/v1/batch", `{}`, alice...)

	// Whoever announces too much is refused before a door sees it, whoever doesn't while a
	// door reads.
	for _, path := range []string{"/pay", "/forrst", "/hook", "/v1/operations/run/executions", "/v1/batch"} {
		for _, announced := range []bool{true, false} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`"`+strings.Repeat("x", bodiesInFlight)+`"`))
			if !announced {
				r.ContentLength = -1
			}
			for i := 0; i < len(keyed); i += 2 {
				r.Header.Set(keyed[i], keyed[i+1])
			}
			w := httptest.NewRecorder()
			if mux.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("%s, announced: %t: %d %s", path, announced, w.Code, w.Body)
			}
		}
	}

	for what, m := range map[string]struct{ got, want map[string]int }{
		"decisions": {c.decisions, map[string]int{
			"http execute": 1, "http replay": 1, "http conflict": 1,
			"forrst execute": 2, "forrst replay": 1, "forrst conflict": 1,
			"webhook execute": 1, "webhook replay": 1, "webhook conflict": 1,
			"api execute": 2, "api conflict": 1,
		}},
		"refusals": {c.refusals, map[string]int{
			"http conflict": 1, "http key_missing": 1, "http unidentified": 1,
			"forrst conflict": 1, "forrst UNAUTHORIZED": 1, "forrst PARSE_ERROR": 1,
			"webhook conflict": 1, "webhook signature_wrong": 1,
			"api conflict": 1, "api invalid_call": 6, "api unauthorized": 1, "api unsupported_media_type": 1,
			"http over_budget": 2, "forrst over_budget": 2, "webhook over_budget": 2, "api over_budget": 4,
		}},
		"troubles": {c.troubles, map[string]int{"forrst": 1}},
	} {
		if !maps.Equal(m.got, m.want) {
			t.Errorf("the %s are\n%v, want\n%v", what, sorted(m.got), sorted(m.want))
		}
	}
}

func sorted(m map[string]int) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprint(key, " ", m[key]))
	}
	return list
}

// bodiesInFlight is how many bytes of bodies may be in flight in front of the doors.
const bodiesInFlight = 64 << 10

// mountDoors puts a route, a service over Forrst, a receiver of webhooks and the execution
// API on an engine, behind a limit.
func mountDoors(t *testing.T, engine *semel.Engine) http.Handler {
	t.Helper()
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	charge := func(_ context.Context, x semel.Execution, _ *forrst.Request) (any, error) {
		if x.ID().Key == "fails" {
			return nil, errors.New("a fault of the function")
		}
		return json.RawMessage(`{}`), nil
	}
	service, err := forrst.New(engine, forrst.Options{Identify: guard.Caller, Functions: []forrst.Function{{
		Name: "charge", Operation: semel.Operation{Name: "charge"}, Versions: []forrst.Version{{Version: "1.0.0", Run: charge}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	source, err := webhook.Builtin("github")
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := webhook.New(engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{"a webhook's secret"}},
		Mode:            webhook.Sync, OnConflict: webhook.DropConflict,
		Handle: func(context.Context, *webhook.Event) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/pay", guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })))
	mux.Handle("/forrst", service)
	mux.Handle("/hook", receiver)
	if err := engine.Register(semel.Operation{Name: "run"}); err != nil {
		t.Fatal(err)
	}
	executions, err := api.New(api.Options{Engine: engine, Identify: func(r *http.Request) (api.Caller, error) {
		who, err := guard.Caller(r)
		return api.Caller{Tenant: who.Tenant, Principal: who.Principal, Credential: who.Credential}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/v1/", executions.Data())
	budget := limit.NewBudget(limit.Bounds{Total: bodiesInFlight})
	doors := map[string]string{"/pay": semelhttp.Name, "/forrst": forrst.Name, "/hook": webhook.Name, "/v1/": api.Name}
	return budget.Handler(mux, limit.Options{Refused: func(r *http.Request, code semel.Code) {
		_, path := mux.Handler(r)
		engine.Internal().Answered(engine.Internal().Arrived(r.Context(), doors[path], r.Header), semel.Delivered{Code: code})
	}})
}
