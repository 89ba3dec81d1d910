package pgstore

import (
	"context"
	"testing"

	"github.com/semelhq/semel/internal/pgtest"
)

// TestNothingIsCalledBack looks whether the driver asks the server to cancel what it
// does, which it does over a connection of its own.
func TestNothingIsCalledBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		give   func(cancel func(), l *line)
		called bool
	}{
		{"by a line that is let go of", func(_ func(), l *line) { l.letGo() }, false},
		{"by the driver, whose own way it is", func(cancel func(), _ *line) { cancel() }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := pgtest.Shared(t)
			w := newWire(t, server)
			s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, NoNotices: true})
			t.Cleanup(func() { mustClose(t, s) })
			conn, err := s.commits.conns.take()
			noError(t, err)
			pc := conn.Conn().PgConn()
			told := make(chan struct{})
			w.set(func(x *exchange) {
				if len(x.sql) > 0 && x.sql[0] == "SELECT 'stuck'" {
					x.hang = true
					close(told)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() {
				ended <- execute(ctx, pc, newRareStatement("SELECT 'stuck'"), func([][]byte) error { return nil })
			}()
			<-told
			c.give(cancel, lineOf(pc))
			if err := <-ended; err == nil {
				t.Error("it was answered")
			}
			<-pc.CleanupDone() // then it has asked, if it does
			s.commits.conns.giveBack(conn)
			if called := w.cancelled() > 0; called != c.called {
				t.Errorf("the server was asked: %v", called)
			}
		})
	}
}

// cancelled is how often the server was asked.
func (w *wire) cancelled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cancels
}
