package pgstore

import (
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// network is a network between a store and its server.
type network struct {
	*faultnet.Net
	backend atomic.Pointer[string] // the server's socket
}

// newNetwork makes a healthy network to a server, which goes with the test.
func newNetwork(t testing.TB, server *pgtest.Server) *network {
	t.Helper()
	n := &network{}
	n.leadTo(t, server)
	var err error
	if n.Net, err = faultnet.Listen(func() (net.Conn, error) { return net.Dial("unix", *n.backend.Load()) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// leadTo has new connections lead to a server.
func (n *network) leadTo(t testing.TB, server *pgtest.Server) {
	t.Helper()
	u, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	socket := u.Query().Get("host") + "/.s.PGSQL.5432"
	n.backend.Store(&socket)
}

// url is the address of a database behind the network.
func (n *network) url(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", n.Addr(), database)
}
