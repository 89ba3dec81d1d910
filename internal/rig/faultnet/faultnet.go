// Package faultnet is a TCP proxy on loopback that fails on demand as networks do, and counts
// how often it did.
package faultnet

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
)

// Fault is a way in which a network fails.
type Fault string

const (
	// Healthy: no fault.
	Healthy Fault = ""
	// Reset ends all connections with RST, new ones too.
	Reset Fault = "reset"
	// Blackhole drops everything in silence. Once it is healed, everything arrives, as TCP
	// retransmits it.
	Blackhole Fault = "blackhole"
	// Deaf lets requests through, but no answers. Once it is healed, the connections are
	// reset, so clients never get those answers.
	Deaf Fault = "deaf"
	// HalfOpen is a blackhole after which the old connections stay dead, and their clients
	// don't learn so.
	HalfOpen Fault = "half-open"
	// Hole resets all connections, and is [HalfOpen] for new ones: it accepts them and never
	// says a word.
	Hole Fault = "hole"
	// Torn ends every connection with RST after a random number of bytes, at most 2,000.
	Torn Fault = "torn"
)

// tornAfter is how many bytes a connection carries at most under Torn.
const tornAfter = 2000

// Net is a network to one server, healthy at first. Its methods may be called concurrently.
type Net struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	pumps    sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond
	fault  Fault
	hits   func(from string) bool // reports whether connections of an address fail
	closed bool
	pairs  map[*pair]bool
	fired  int // see Fired
	draw   func() Cut
	cuts   map[Cut]int // what was cut
}

// pair is one connection through the network.
type pair struct {
	client, server net.Conn
	from           string // the address of the client, without its port
	gone           bool   // its bytes are dropped for good
	left           int    // bytes that it carries until it is torn
	exchange       exchange
}

// Listen starts a network to the server that dial connects to. Close it in the end.
func Listen(dial func() (net.Conn, error)) (*Net, error) { return ListenTLS(dial, nil) }

// ListenTLS starts a network that ends TLS in front of its server, like a load balancer. With a
// nil configuration it is [Listen].
func ListenTLS(dial func() (net.Conn, error), config *tls.Config) (*Net, error) {
	n := &Net{dial: dial, pairs: map[*pair]bool{}, hits: everybody, cuts: map[Cut]int{}}
	n.change = sync.NewCond(&n.mu)
	var err error
	if n.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if config != nil {
		n.listener = tls.NewListener(n.listener, config)
	}
	n.pumps.Go(n.accept)
	return n, nil
}

func everybody(string) bool { return true }

// Addr is the address that clients connect to, as host:port.
func (n *Net) Addr() string { return n.listener.Addr().String() }

// Port is the port of Addr.
func (n *Net) Port() int { return n.listener.Addr().(*net.TCPAddr).Port }

// Close ends the network and all connections.
func (n *Net) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	_ = n.listener.Close()
	n.Set(Reset)
	n.pumps.Wait()
}

// Set makes the network fail from now on; [Healthy] heals it.
func (n *Net) Set(f Fault) { n.SetFor(f, everybody) }

// SetFor is Set for the clients at some addresses only.
func (n *Net) SetFor(f Fault, hits func(from string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, hit := n.fault, n.hits
	n.fault, n.hits = f, hits
	for p := range n.pairs {
		switch {
		case (f == Reset || f == Hole) && hits(p.from) || was == Deaf && f == Healthy && hit(p.from):
			n.reset(p)
		case (was == HalfOpen || was == Hole) && f == Healthy && hit(p.from):
			p.gone = true
			_ = p.server.Close() // the server has noticed
		}
	}
	n.change.Broadcast()
}

// Fired counts how often the network has failed: the connections that it reset, and the reads
// that it held back.
func (n *Net) Fired() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fired
}

// reset ends a connection with RST. The caller holds n.mu.
func (n *Net) reset(p *pair) {
	client := p.client
	if secure, ok := client.(*tls.Conn); ok {
		client = secure.NetConn() // without the alert that ends TLS
	}
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = client.Close()
	// The server, too: one that waits for its answer to arrive would take a clean end for that. But
	// it may still read the part of a request that it gets, which a reset could take away.
	if tcp, ok := p.server.(*net.TCPConn); ok && !p.exchange.mute {
		_ = tcp.SetLinger(0)
	}
	_ = p.server.Close()
	p.gone = true
	delete(n.pairs, p)
	n.fired++
}

func (n *Net) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.pumps.Go(func() { n.connect(client) })
	}
}

// connect connects a client to the server.
func (n *Net) connect(client net.Conn) {
	server, err := n.dial()
	if err != nil {
		_ = client.Close() // as the kernel of a host whose server is down
		return
	}
	p := &pair{client: client, server: server, from: client.RemoteAddr().(*net.TCPAddr).IP.String(), left: rand.IntN(tornAfter)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pairs[p] = true
	if n.closed || n.fault == Reset && n.hits(p.from) {
		n.reset(p)
	}
	n.pumps.Go(func() { n.pump(p, server, client, false) })
	n.pumps.Go(func() { n.pump(p, client, server, true) })
}

// pump copies the requests of a connection, or its answers.
func (n *Net) pump(p *pair, to, from net.Conn, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		_ = from.SetReadDeadline(n.patience(p, answers))
		size, err := from.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && n.quiet(p) {
			err = nil
		}
		if size > 0 {
			pass, torn := n.admit(p, size, answers)
			if pass < 0 {
				return
			}
			if !torn {
				pass, torn = n.part(p, pass, answers)
			}
			if _, werr := to.Write(buf[:pass]); werr != nil {
				err = errors.Join(err, werr)
			}
			if torn {
				n.tear(p)
			}
		}
		if err != nil {
			n.end(p, answers)
			return
		}
	}
}

// admit waits while a fault holds bytes back. It returns how many may pass, or -1 if the
// connection is gone, and whether the connection is torn after them.
func (n *Net) admit(p *pair, size int, answers bool) (pass int, torn bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.gone && n.holds(p, answers) {
		n.fired++
	}
	for !p.gone && n.holds(p, answers) {
		n.change.Wait()
	}
	if !p.gone {
		if n.fault == Torn && n.hits(p.from) {
			if p.left < size {
				return p.left, true
			}
			p.left -= size
		}
		return size, false
	}
	for n.pairs[p] && !n.closed { // the connection stays open, and dead
		n.change.Wait()
	}
	return -1, false
}

// tear ends a connection that has carried all the bytes that it may.
func (n *Net) tear(p *pair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut(p)
}

// holds reports whether bytes in a direction are held back. The caller holds n.mu.
func (n *Net) holds(p *pair, answers bool) bool {
	return n.hits(p.from) && (n.fault == Blackhole || n.fault == HalfOpen || n.fault == Hole || n.fault == Deaf && answers)
}

// end closes a connection that one side has closed, unless the fault hides that from the
// other side.
func (n *Net) end(p *pair, byServer bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if byServer && p.exchange.mute && n.pairs[p] {
		return // the client must find out by a timeout
	}
	for n.pairs[p] && !p.gone && n.holds(p, true) {
		n.change.Wait()
	}
	if p.gone && n.pairs[p] {
		return
	}
	_ = p.client.Close()
	_ = p.server.Close()
	delete(n.pairs, p)
}
