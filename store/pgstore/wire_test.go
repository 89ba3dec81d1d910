package pgstore

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// wire is a way between a store and its server that knows their protocol, and may say
// something else than either of them has said.
type wire struct {
	listener net.Listener
	backend  string // the server's socket
	running  sync.WaitGroup
	done     chan struct{} // closed when the test has ended

	mu      sync.Mutex
	closed  bool
	refuse  *pgproto3.ErrorResponse // what new connections are told
	meddle  func(*exchange)
	open    map[net.Conn]bool
	cancels int // requests to cancel what a session does
}

// exchange is what a client sends up to a Sync, and what it gets for that.
type exchange struct {
	conn     int      // the number of the connection
	sql      []string // of what is executed
	request  []byte
	previous [][]byte // the reply to the last exchange that executed the same

	// What meddle may set. Nothing is passed on before gate is closed. Instead is the
	// reply, and the server hears of nothing; after is what becomes of the server's
	// reply, a message each.
	gate    <-chan struct{}
	instead [][]byte
	after   func(reply [][]byte) [][]byte
	hang    bool // nothing is said any more, when the server was told
	cut     bool // the connection ends behind the reply
}

// newWire makes a wire that leads to a server, and goes with the test.
func newWire(t *testing.T, server *pgtest.Server) *wire {
	t.Helper()
	u, err := url.Parse(server.URL("postgres"))
	noError(t, err)
	w := &wire{backend: u.Query().Get("host") + "/.s.PGSQL.5432", open: map[net.Conn]bool{}, done: make(chan struct{})}
	w.listener, err = net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	w.running.Go(w.accept)
	t.Cleanup(func() {
		close(w.done)
		w.mu.Lock()
		w.closed = true
		for conn := range w.open {
			_ = conn.Close()
		}
		w.mu.Unlock()
		_ = w.listener.Close()
		w.running.Wait()
	})
	return w
}

func (w *wire) url(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", w.listener.Addr(), database)
}

// set has the wire meddle with exchanges from now on.
func (w *wire) set(meddle func(*exchange)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meddle = meddle
}

// cutAll ends all connections, and has new ones told an error, if there is one.
func (w *wire) cutAll(refuse *pgproto3.ErrorResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = refuse
	for conn := range w.open {
		_ = conn.Close()
	}
}

func (w *wire) accept() {
	for n := 0; ; n++ {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", w.backend)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.open[client], w.open[server] = true, true
		if w.closed {
			_, _ = client.Close(), server.Close()
		}
		w.mu.Unlock()
		w.running.Go(func() {
			w.carry(n, client, server)
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.open, client)
			delete(w.open, server)
			_, _ = client.Close(), server.Close()
		})
	}
}

// carry carries the exchanges of a connection.
func (w *wire) carry(n int, client, server net.Conn) {
	front := pgproto3.NewBackend(client, client)
	back := pgproto3.NewFrontend(server, server)
	hello, err := front.ReceiveStartupMessage()
	if err != nil {
		return
	}
	w.mu.Lock()
	refuse := w.refuse
	if _, cancels := hello.(*pgproto3.CancelRequest); cancels {
		w.cancels++
	}
	w.mu.Unlock()
	if refuse != nil {
		_, _ = client.Write(encoded(refuse))
		return
	}
	if _, err := server.Write(encoded(hello)); err != nil {
		return
	}
	reply, err := hear(back)
	if err != nil {
		return
	}
	said := map[string][][]byte{} // the last reply to what was executed
	prepared := map[string]string{}
	for {
		if _, err := client.Write(slices.Concat(reply...)); err != nil {
			return
		}
		x := exchange{conn: n}
		if !x.listen(front, prepared) {
			return
		}
		key := strings.Join(x.sql, ";")
		x.previous = said[key]
		w.mu.Lock()
		if w.meddle != nil {
			w.meddle(&x)
		}
		w.mu.Unlock()
		if x.gate != nil {
			select {
			case <-x.gate:
			case <-w.done:
				return
			}
		}
		reply = x.instead
		if reply == nil {
			if _, err := server.Write(x.request); err != nil {
				return
			}
			if reply, err = hear(back); err != nil {
				return
			}
			said[key] = reply
		}
		if x.hang {
			_, _ = client.Read(make([]byte, 1)) // until it is closed
			return
		}
		if x.after != nil {
			reply = x.after(reply)
		}
		if x.cut {
			_, _ = client.Write(slices.Concat(reply...))
			return
		}
	}
}

// listen reads what a client sends up to the end of an exchange.
func (x *exchange) listen(front *pgproto3.Backend, prepared map[string]string) bool {
	for {
		msg, err := front.Receive()
		if err != nil {
			return false
		}
		x.request = append(x.request, encoded(msg)...)
		switch msg := msg.(type) {
		case *pgproto3.Parse:
			prepared[msg.Name] = msg.Query
		case *pgproto3.Bind:
			x.sql = append(x.sql, prepared[msg.PreparedStatement])
		case *pgproto3.Query:
			return true
		case *pgproto3.Sync:
			return true
		case *pgproto3.Terminate:
			return false
		}
	}
}

// hear reads what a server says up to the end of an exchange.
func hear(back *pgproto3.Frontend) (reply [][]byte, err error) {
	for {
		msg, err := back.Receive()
		if err != nil {
			return nil, err
		}
		reply = append(reply, encoded(msg))
		if _, end := msg.(*pgproto3.ReadyForQuery); end {
			return reply, nil
		}
	}
}

// encoded is a copy of a message, which is only lent.
func encoded(msg pgproto3.Message) []byte {
	b, err := msg.Encode(nil)
	if err != nil {
		panic(err)
	}
	return b
}

// writes reports whether an exchange makes writes of records, and looks whether it
// looks at what is stored in their place.
func (x *exchange) writes() bool {
	return slices.ContainsFunc(x.sql, func(sql string) bool {
		return strings.Contains(sql, "INSERT INTO \"semel\".\"semel_records\"") || strings.Contains(sql, "UPDATE \"semel\".\"semel_records\"")
	})
}

func (x *exchange) looks() bool {
	return !x.writes() && slices.ContainsFunc(x.sql, func(sql string) bool { return strings.Contains(sql, "unnest($1::bytea[]) AS w(id) LEFT JOIN") })
}

// together makes writes that are in one batch, by a store that has one connection for
// them and comes by the wire, and returns what each caller was told. Their exchanges
// go to meddle, if there is one, which is told how many of them there were before.
func together(t *testing.T, w *wire, s *Store, meddle func(n int, x *exchange), writes ...store.Write) []told {
	t.Helper()
	if s.opts.MaxConns != 1 {
		t.Fatal("they may go by several connections")
	}
	await(t, "nothing else is written", func() bool { return idle(s) })
	gate := make(chan struct{})
	n := -1
	w.set(func(x *exchange) {
		if x.writes() || x.looks() {
			if n++; n == 0 {
				x.gate = gate
			} else if meddle != nil {
				meddle(n-1, x)
			}
		}
	})
	var all sync.WaitGroup
	all.Go(func() {
		blocker := numbered("blocker", 1)
		_, _ = rand.Read(blocker.Revision[:])
		blocker.ID.Key = blocker.Revision.String()
		put(t, s, blocker, store.Revision{})
	})
	await(t, "the connection is in use", func() bool { return busy(s, 1) })
	results := make([]told, len(writes))
	for i, wr := range writes {
		all.Go(func() {
			cur, applied, err := s.Apply(t.Context(), wr)
			results[i] = told{wr, cur, applied, err}
		})
	}
	await(t, "all wait", func() bool { return queued(s) == len(writes) })
	close(gate)
	all.Wait()
	w.set(nil)
	return results
}

// refusal is an error of the server that leaves the session.
func refusal(code string) [][]byte {
	return [][]byte{encoded(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: "refused by the test"}), ready}
}

// ending is an error of the server that ends the session.
func ending(code string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: "ended by the test"}
}

var ready = encoded(&pgproto3.ReadyForQuery{TxStatus: 'I'})
