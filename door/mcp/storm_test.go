package mcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/internal/rig/faultnet"
)

// TestStorm: clients that send no key, and ask again under another id when their connection is cut
// somewhere, have one effect for each call, and each answer under the id that it was asked under.
// Half of the calls are known by declared fields, and half by the echo window.
func TestStorm(t *testing.T) {
	w := seen(t, mcp.GatewayOptions{Tools: map[string]mcp.Tool{"refund": {Fields: []string{"/order_id"}}}})
	var mu sync.Mutex
	effects := map[string]int{}
	w.answer = func(rw http.ResponseWriter, r *http.Request, id string, params object) {
		arguments, _ := json.Marshal(params["arguments"])
		mu.Lock()
		effects[string(arguments)]++
		mu.Unlock()
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"structuredContent":%s,"content":[]}}`, id, arguments)
		if run(r)%2 == 0 {
			rw.Header().Set("Content-Type", "text/event-stream")
			text = ": working\n\ndata: " + text + "\n\n"
		}
		_, _ = io.WriteString(rw, text)
	}
	direct := w.url
	network, err := faultnet.Listen(func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(direct, "http://")) })
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	places := []faultnet.Place{faultnet.Uncut, faultnet.Uncut, faultnet.InRequest, faultnet.AfterRequest, faultnet.BeforeAnswer, faultnet.InAnswer}
	network.CutEach(func() faultnet.Cut { return faultnet.Cut{Place: places[rand.IntN(len(places))]} })
	w.url = "http://" + network.Addr()
	const clients, calls = 8, 25
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			client := newClient(t)
			for n := range calls {
				tool := []string{"refund", "pay"}[n%2]
				arguments := fmt.Sprintf(`{"order_id":"%s-%d-%d"}`, tool, c, n)
				for !w.answered(client, tool, arguments) {
				}
			}
		})
	}
	all.Wait()
	for arguments, n := range effects {
		if n != 1 {
			t.Errorf("%s: %d effects", arguments, n)
		}
	}
	if len(effects) != clients*calls {
		t.Errorf("%d calls of %d", len(effects), clients*calls)
	}
	t.Logf("cut: %v", network.Cuts())
}

// answered sends a call once, and reports whether its answer arrived.
func (w *world) answered(client *http.Client, tool, arguments string) bool {
	id, raw := modern.body("tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, tool, arguments), "")
	resp, err := client.Do(w.request(modern, raw, "Mcp-Name", tool))
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return false
	}
	resp.Body = io.NopCloser(strings.NewReader(string(text)))
	got := read(w.t, resp)
	switch given, _ := json.Marshal(got.result["structuredContent"]); {
	case got.id != id:
		w.t.Errorf("asked under %s, answered under %s", id, got.id)
	case got.code == "" && string(given) != arguments:
		w.t.Errorf("asked for %s, and got %s", arguments, text)
	case got.code != "":
		w.t.Logf("%s: %s", arguments, got.code)
		return got.code == "held"
	}
	return true
}
