package pgstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/pgtest"
)

// network is a network between a store and its server: a proxy on loopback that fails
// as networks do, and counts how often it did.
type network struct {
	listener net.Listener
	pumps    sync.WaitGroup

	mu      sync.Mutex
	change  *sync.Cond
	backend string // the server's socket
	fault   netFault
	closed  bool
	pairs   map[*pair]bool
	fired   int // connections reset, or portions of bytes kept from their receiver
}

// netFault is a way in which a network fails.
type netFault string

const (
	healthy netFault = ""
	// reset ends connections, the new ones too, with RST.
	reset netFault = "reset"
	// blackhole lets nothing through and says nothing. Once it is healed, all that
	// was held arrives, as TCP sends it again.
	blackhole netFault = "blackhole"
	// deaf lets requests through, and no answer. Once it is healed, connections
	// are reset, so what was answered stays unknown.
	deaf netFault = "deaf"
	// halfOpen is a blackhole after which the old connections never come back,
	// and their clients are not told.
	halfOpen netFault = "half-open"
)

// pair is one connection through the network.
type pair struct {
	client, server net.Conn
	gone           bool // forgotten: its bytes vanish
}

// newNetwork makes a healthy network to a server, which goes with the test.
func newNetwork(t *testing.T, server *pgtest.Server) *network {
	t.Helper()
	n := &network{pairs: map[*pair]bool{}}
	n.change = sync.NewCond(&n.mu)
	n.leadTo(t, server)
	var err error
	if n.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	n.pumps.Go(n.accept)
	t.Cleanup(func() {
		n.mu.Lock()
		n.closed = true
		n.mu.Unlock()
		_ = n.listener.Close()
		n.set(reset)
		n.pumps.Wait()
	})
	return n
}

// leadTo has new connections lead to a server.
func (n *network) leadTo(t *testing.T, server *pgtest.Server) {
	t.Helper()
	u, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.backend = u.Query().Get("host") + "/.s.PGSQL.5432"
}

// url is the address of a database behind the network.
func (n *network) url(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", n.listener.Addr(), database)
}

// set has the network fail from now on, or no longer.
func (n *network) set(f netFault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.fault
	n.fault = f
	for p := range n.pairs {
		switch {
		case f == reset || was == deaf && f == healthy:
			n.reset(p)
		case was == halfOpen && f == healthy:
			p.gone = true
			_ = p.server.Close() // the server has noticed
		}
	}
	n.change.Broadcast()
}

// count is how often the network has failed.
func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fired
}

// reset ends a connection with RST. The caller holds n.mu.
func (n *network) reset(p *pair) {
	if tcp, ok := p.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = p.client.Close()
	_ = p.server.Close()
	p.gone = true
	delete(n.pairs, p)
	n.fired++
}

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		backend := n.backend
		n.mu.Unlock()
		server, err := net.Dial("unix", backend)
		if err != nil {
			_ = client.Close() // as the kernel of a host whose server is down
			continue
		}
		p := &pair{client: client, server: server}
		n.mu.Lock()
		n.pairs[p] = true
		if n.fault == reset || n.closed {
			n.reset(p)
		}
		n.mu.Unlock()
		n.pumps.Go(func() { n.pump(p, server, client, false) })
		n.pumps.Go(func() { n.pump(p, client, server, true) })
	}
}

// pump carries requests, or answers, of one connection.
func (n *network) pump(p *pair, to, from net.Conn, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		size, err := from.Read(buf)
		if size > 0 {
			if !n.admit(p, answers) {
				return
			}
			if _, werr := to.Write(buf[:size]); werr != nil {
				err = errors.Join(err, werr)
			}
		}
		if err != nil {
			n.end(p)
			return
		}
	}
}

// admit waits while the fault holds bytes back, and reports whether they may pass.
func (n *network) admit(p *pair, answers bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.gone && n.holds(answers) {
		n.fired++
	}
	for !p.gone && n.holds(answers) {
		n.change.Wait()
	}
	if !p.gone {
		return true
	}
	for n.pairs[p] && !n.closed { // forgotten: the connection stays open
		n.change.Wait()
	}
	return false
}

// holds reports whether bytes in a direction are held back. The caller holds n.mu.
func (n *network) holds(answers bool) bool {
	return n.fault == blackhole || n.fault == halfOpen || n.fault == deaf && answers
}

// end closes a connection that one side has closed, unless the other may not know.
func (n *network) end(p *pair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.pairs[p] && !p.gone && n.holds(true) {
		n.change.Wait()
	}
	if p.gone && n.pairs[p] {
		return
	}
	_ = p.client.Close()
	_ = p.server.Close()
	delete(n.pairs, p)
}
