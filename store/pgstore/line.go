package pgstore

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// line is a network connection that can be let go of while the server works for it.
//
// When a connection breaks pgx asks the server to cancel what it does, over another
// one. A commit that is cancelled while it waits for a standby is a commit that this
// server shows and no standby has. So of a line that was let go nobody finds the way
// back to the server, which ends what it has begun.
type line struct {
	net.Conn
	gone atomic.Bool
}

// dialing makes lines.
func dialing(dialer *net.Dialer) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &line{Conn: conn}, nil
	}
}

// lineOf is the line of a connection: each has one.
func lineOf(conn *pgconn.PgConn) *line {
	c := conn.Conn()
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return c.(*line)
}

// letGo ends the calls that wait for an answer with an error.
func (l *line) letGo() {
	l.gone.Store(true)
	_ = l.Close()
}

// RemoteAddr is where a request to cancel would go.
func (l *line) RemoteAddr() net.Addr {
	if l.gone.Load() {
		return nowhere{}
	}
	return l.Conn.RemoteAddr()
}

// nowhere is an address on a network that there is not.
type nowhere struct{}

func (nowhere) Network() string { return "nowhere" }
func (nowhere) String() string  { return "nowhere" }
