package agents

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// TestEventSource: a stock EventSource whose connections are torn every few events gets each event
// of a recorded stream once and in order, and the upstream is called once.
func TestEventSource(t *testing.T) {
	thorough.Only(t, "a stock EventSource")
	const events = 100
	var calls atomic.Int64
	upstream := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "retry: 10\n\n")
		for n := range events {
			fmt.Fprintf(w, "id: %d\ndata: event %d %s\n\n", n, n, strings.Repeat("x", 50))
			_ = http.NewResponseController(w).Flush()
		}
		fmt.Fprint(w, "id: end\nevent: done\ndata: \n\n")
	}))
	p, err := semelproxy.New(semelhttptest.New(t, nil).Guard, semelproxy.Options{Upstream: urlOf(t, upstream), Route: semelhttp.Route{Operation: semel.Operation{Name: "op"}}})
	if err != nil {
		t.Fatal(err)
	}
	front := urlOf(t, listen(t, p))
	network, err := faultnet.Listen(func() (net.Conn, error) { return net.Dial("tcp", front.Host) })
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	network.Set(faultnet.Torn)
	cmd := node(t, "stream.mjs", "http://"+network.Addr()+"/", "key-1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var got struct {
		Events    []string
		Connected int
	}
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got.Events) != events || calls.Load() != 1 || got.Connected < 3 {
		t.Fatalf("%v: %d events by %d connections, and %d calls of the upstream", err, len(got.Events), got.Connected, calls.Load())
	}
	for n, text := range got.Events {
		if !strings.HasPrefix(text, fmt.Sprintf("event %d ", n)) {
			t.Errorf("event %d is %q", n, text)
		}
	}
	t.Logf("%d events by %d connections, and %d call of the upstream", events, got.Connected, calls.Load())
}
