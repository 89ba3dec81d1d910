package semelhttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// streamedCharge is a request without a body, whose connection ends with the answer.
const streamedCharge = "POST /charges HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: k1\r\nAuthorization: Bearer alice\r\nContent-Length: 0\r\n\r\n"

// A first caller who never reads, and a duplicate who doesn't either, delay nobody else: the
// stream goes on, and others have it.
func TestACallerWhoNeverReadsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 10_000
		var want strings.Builder
		w := newWorld(t, "192.0.2.1", semelhttp.Options{}, semelhttp.Route{Operation: semel.Operation{Name: "op"}}, serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
			w.run()
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := range events {
				_, _ = fmt.Fprintf(io.MultiWriter(rw, &want), "data: event number %d of those that nobody reads\n\n", i)
				_ = http.NewResponseController(rw).Flush()
				if i == events/2 {
					w.wait()
				}
			}
		}))
		stop := w.start()
		defer stop()
		ask := func() net.Conn {
			conn := w.pipes.dial()
			_, _ = io.WriteString(conn, streamedCharge)
			synctest.Wait()
			return conn
		}
		deaf := ask()
		defer deaf.Close()
		also := ask()
		defer also.Close()
		x := &exchange{conn: ask(), done: make(chan struct{})}
		go func() { defer close(x.done); x.read("POST") }()
		w.release()
		a := x.wait()
		if a.err != nil || a.resp.Header.Get(semelhttp.StreamHeader) != semelhttp.StreamLive || string(a.body) != want.String() {
			t.Errorf("%d bytes of %d, %v", len(a.body), want.Len(), a.err)
		}
		if n := w.runs.Load(); n != 1 {
			t.Errorf("the handler ran %d times", n)
		}
	})
}

// The sign that an answer is on its way is in the ledger before its first byte, unless the policy
// holds the call anyway. That an effect is open says nothing: it may end before the stream does.
func TestTheFirstByteIsInTheLedger(t *testing.T) {
	for name, c := range map[string]struct {
		op   semel.Operation
		want string
	}{
		"a ledger that lets it run again": {semel.Operation{Name: "op", Effects: []string{"charge"}}, "charge semelhttp.answer"},
		"a policy that holds it":          {semel.Operation{Name: "op", OnAbandoned: semel.HoldAbandoned}, "charge"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				w := newWorld(t, "192.0.2.1", semelhttp.Options{}, semelhttp.Route{Operation: c.op}, serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
					a, _ := semelhttp.Attempt(r.Context())
					rw.Header().Set("Content-Type", "text/event-stream")
					if _, err := semel.Effect(r.Context(), a, "charge", func(context.Context, string) (string, error) {
						_, _ = io.WriteString(rw, "data: charging\n\n")
						return "ch_1", http.NewResponseController(rw).Flush()
					}); err != nil {
						t.Error(err)
					}
					rec, err := w.store.Get(r.Context(), a.Record().ID)
					if err != nil {
						t.Error(err)
						return
					}
					for _, ef := range rec.Effects {
						got = append(got, ef.Name)
					}
				}))
				stop := w.start()
				defer stop()
				conn := w.pipes.dial()
				_, _ = io.WriteString(conn, streamedCharge)
				if _, err := io.ReadAll(conn); err != nil {
					t.Error(err)
				}
				if strings.Join(got, " ") != c.want {
					t.Errorf("the ledger has %q, want %q", got, c.want)
				}
			})
		})
	}
}
