package service_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/rig/clause"
)

// replayed says of a door's answer which member is replayed, if it isn't all of it, or else which
// members name the delivery; and of a retry how it names itself anew.
type replayed struct {
	only    []string
	names   [][]string
	another [2]string // in the body, and in its place
}

// TestAReplayIsTheFirstAnswerAtEveryDoor byte for byte, but for the members that name the
// delivery. The program behind the doors never says the same twice, and writes JSON in its own
// way.
func TestAReplayIsTheFirstAnswerAtEveryDoor(t *testing.T) {
	clause.Proves(t, "CORE-SVC.3")
	var n atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		result := fmt.Sprintf("{\"z\": %d.0,\n  \"a\" : \"\\u00e9/é<&>\"}", n.Add(1))
		switch r.URL.Path {
		case "/forrst":
			result = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","result":` + result + `}`
		case "/agent/message:send":
			result = `{"task":{"id":"T1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"metadata":` + result + "}}\n\n"
		case "/agent":
			result = `{"id":` + string(jsonscan.Member(body, "id")) + `,"jsonrpc":"2.0","result":{"kind":"task","id":"T2","contextId":"c","status":{"state":"completed"},"metadata":` + result + "}}\n"
		case "/mcp":
			result = `{"id":` + string(jsonscan.Member(body, "id")) + `,"jsonrpc":"2.0","result":{"content":[],"structuredContent":` + result + "}}\n"
		case "/map":
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, result)
	}))
	t.Cleanup(up.Close)
	file, deliveries := everyDoor(t, "memory:", up.URL)
	s := start(t, file)
	deliveries = append(deliveries, told{
		door: "a2a by JSON-RPC", path: "/agent", header: []string{"Authorization", "Bearer alice-secret", "Content-Type", "application/json"},
		body: `{"jsonrpc":"2.0","id":"r","method":"message/send","params":{"message":{"kind":"message","messageId":"m-2","role":"user","parts":[{"kind":"text","text":"pay"}]}}}`,
	})
	rename := [2]string{`"id":"r"`, `"id":"another"`}
	doors := map[string]replayed{
		"http": {}, "a2a": {}, "webhook": {}, "whatsapp": {},
		"api":             {},
		"a2a by JSON-RPC": {[]string{"result"}, nil, rename},
		"mcp":             {[]string{"result"}, [][]string{{"_meta"}}, rename}, // which says that it is a replay
		"forrst":          {nil, [][]string{{"id"}, {"extensions"}}, rename},
		"ids":             {nil, [][]string{{"decision"}}, [2]string{}},
	}
	for _, d := range deliveries {
		door, ok := doors[d.door]
		if !ok {
			continue // a shadow keeps no answer, and an inbox says of each delivery what became of it
		}
		delete(doors, d.door)
		t.Run(d.door, func(t *testing.T) {
			var first string
			for i := range 3 {
				body := d.body
				if i > 0 && door.another[0] != "" {
					body = strings.Replace(body, door.another[0], door.another[1], 1)
				}
				status, _, text := do(t, http.MethodPost, s.data(d.path), body, append([]string{"X-Request-ID", fmt.Sprint("request-", i)}, d.header...)...)
				if d.door == "api" && i == 0 {
					execution := string(jsonscan.Member([]byte(text), "execution"))
					do(t, http.MethodPost, s.data("/v1/executions/"+strings.Trim(execution, `"`)+"/complete"), `{"result":{"z": 1.0, "a":"é"}}`, "Content-Type", "application/json", "Authorization", "Bearer alice-secret")
					status, _, text = do(t, http.MethodPost, s.data(d.path), body, d.header...)
				}
				rest := []byte(text)
				for _, name := range door.only {
					rest = jsonscan.Member(rest, name)
				}
				for _, path := range door.names {
					rest = jsonscan.Without(bytes.Clone(rest), path...)
				}
				got := fmt.Sprint(status, " ", string(rest))
				if i == 0 {
					first = got
				} else if got != first {
					t.Errorf("delivery %d got\n%s\nand the first\n%s", i+1, got, first)
				}
			}
		})
	}
	for door := range doors {
		t.Errorf("nothing was delivered at the door %s", door)
	}
}

// TestAPayloadAndNoneDiffer at every door whose deliveries may have none: a retry without a
// payload doesn't match a delivery with one, nor the other way round.
func TestAPayloadAndNoneDiffer(t *testing.T) {
	clause.Proves(t, "CORE-ID.4")
	var hits atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		hits.Add(1)
		_, _ = io.WriteString(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","result":{}}`)
	}))
	t.Cleanup(up.Close)
	file, _ := everyDoor(t, "memory:", up.URL)
	s := start(t, file)
	post := func(path, body string, header ...string) (int, string) {
		status, _, text := do(t, http.MethodPost, s.data(path), body, append(header, "Authorization", "Bearer alice-secret")...)
		return status, text
	}
	function := func(arguments string) func(key string) (int, string) {
		return func(key string) (int, string) {
			return post("/forrst", `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"pay","version":"1.0.0"`+arguments+`},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"`+key+`"}}]}`)
		}
	}
	begin := func(body string) func(key string) (int, string) {
		return func(key string) (int, string) {
			return post("/v1/operations/begun/executions", body, "Content-Type", "application/json", "Idempotency-Key", key)
		}
	}
	request := func(body string, header ...string) func(key string) (int, string) {
		return func(key string) (int, string) {
			return post("/charges", body, append(header, "Idempotency-Key", key)...)
		}
	}
	event := func(body string) func(key string) (int, string) {
		return func(key string) (int, string) {
			return post("/hooks", body, signedAs(t, "github", "a webhook's secret", body, "X-GitHub-Delivery", key, "X-GitHub-Event", "push")...)
		}
	}
	calls := 0
	for name, c := range map[string]struct {
		with, without func(key string) (int, string)
		says          string
	}{
		"http":                {request("{}"), request(""), "422 conflict"},
		"http, JSON":          {request("{}", "Content-Type", "application/json"), request("", "Content-Type", "application/json"), "422 conflict"},
		"api":                 {begin(`{"payload":{}}`), begin(`{}`), "422 conflict"},
		"api, a null payload": {begin(`{"payload":null}`), begin(`{}`), "422 conflict"},
		// By Forrst's own rule a call without arguments is one with none inside, {}.
		"forrst":  {function(`,"arguments":{"a":1}`), function(""), "409 IDEMPOTENCY_CONFLICT"},
		"webhook": {event("{}"), event(""), "200 "}, // it is kept for somebody to decide
	} {
		for _, order := range [][2]func(string) (int, string){{c.with, c.without}, {c.without, c.with}} {
			calls++
			key := fmt.Sprintf("0190163d-8694-739b-aea5-96000000%04x", calls)
			if status, text := order[0](key); status >= 300 {
				t.Errorf("%s: the first delivery gets %d %s", name, status, text)
			}
			ran := hits.Load()
			status, text := order[1](key)
			if got := fmt.Sprint(status, " ", text); !strings.HasPrefix(got, c.says[:3]) || !strings.Contains(got, c.says[4:]) || hits.Load() != ran {
				t.Errorf("%s: after %d runs it gets %s, want %s", name, hits.Load()-ran, got, c.says)
			}
		}
	}
}
