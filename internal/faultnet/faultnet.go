// Package faultnet is a network that fails: a proxy on loopback between clients and
// a server, which fails as networks do, and counts how often it did.
package faultnet

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
)

// Fault is a way in which a network fails.
type Fault string

const (
	// Healthy is no fault.
	Healthy Fault = ""
	// Reset ends connections, the new ones too, with RST.
	Reset Fault = "reset"
	// Blackhole lets nothing through and says nothing. Once it is healed, all that
	// was held arrives, as TCP sends it again.
	Blackhole Fault = "blackhole"
	// Deaf lets requests through, and no answer. Once it is healed, connections
	// are reset, so what was answered stays unknown.
	Deaf Fault = "deaf"
	// HalfOpen is a blackhole after which the old connections never come back,
	// and their clients are not told.
	HalfOpen Fault = "half-open"
	// Torn ends every connection with RST in the midst of what it carries: after a
	// few hundred bytes, wherever that is.
	Torn Fault = "torn"
)

// tornAfter is how many bytes a connection carries at most before it is torn.
const tornAfter = 2000

// Net is a network to one server. It is healthy at first.
type Net struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	pumps    sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond
	fault  Fault
	hits   func(from string) bool // whose connections fail
	closed bool
	pairs  map[*pair]bool
	fired  int // connections reset, or portions of bytes kept from their receiver
}

// pair is one connection through the network.
type pair struct {
	client, server net.Conn
	from           string // the address of the client, without its port
	gone           bool   // forgotten: its bytes vanish
	left           int    // bytes until it is torn
}

// Listen makes a network to the server that dial connects to. It goes on until it is
// closed.
func Listen(dial func() (net.Conn, error)) (*Net, error) {
	n := &Net{dial: dial, pairs: map[*pair]bool{}, hits: everybody}
	n.change = sync.NewCond(&n.mu)
	var err error
	if n.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	n.pumps.Go(n.accept)
	return n, nil
}

func everybody(string) bool { return true }

// Addr is where clients connect to, as host:port.
func (n *Net) Addr() string { return n.listener.Addr().String() }

// Port is that of Addr.
func (n *Net) Port() int { return n.listener.Addr().(*net.TCPAddr).Port }

// Close ends the network, and all connections.
func (n *Net) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	_ = n.listener.Close()
	n.Set(Reset)
	n.pumps.Wait()
}

// Set has the network fail from now on, or no longer.
func (n *Net) Set(f Fault) { n.SetFor(f, everybody) }

// SetFor has it fail for clients at some addresses only.
func (n *Net) SetFor(f Fault, hits func(from string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, hit := n.fault, n.hits
	n.fault, n.hits = f, hits
	for p := range n.pairs {
		switch {
		case f == Reset && hits(p.from) || was == Deaf && f == Healthy && hit(p.from):
			n.reset(p)
		case was == HalfOpen && f == Healthy && hit(p.from):
			p.gone = true
			_ = p.server.Close() // the server has noticed
		}
	}
	n.change.Broadcast()
}

// Fired is how often the network has failed: connections that were reset, and
// portions of bytes that were kept from their receiver.
func (n *Net) Fired() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fired
}

// reset ends a connection with RST. The caller holds n.mu.
func (n *Net) reset(p *pair) {
	if tcp, ok := p.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = p.client.Close()
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

// connect leads a client to the server.
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

// pump carries requests, or answers, of one connection.
func (n *Net) pump(p *pair, to, from net.Conn, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		size, err := from.Read(buf)
		if size > 0 {
			pass, torn := n.admit(p, size, answers)
			if pass < 0 {
				return
			}
			if _, werr := to.Write(buf[:pass]); werr != nil {
				err = errors.Join(err, werr)
			}
			if torn {
				n.tear(p)
				return
			}
		}
		if err != nil {
			n.end(p)
			return
		}
	}
}

// admit waits while the fault holds bytes back, and says how many may pass: -1 if
// the connection is gone. After those it is torn, or not.
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
	for n.pairs[p] && !n.closed { // forgotten: the connection stays open
		n.change.Wait()
	}
	return -1, false
}

// tear ends a connection that has carried as much as it may.
func (n *Net) tear(p *pair) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pairs[p] {
		n.reset(p)
	}
}

// holds reports whether bytes in a direction are held back. The caller holds n.mu.
func (n *Net) holds(p *pair, answers bool) bool {
	return n.hits(p.from) && (n.fault == Blackhole || n.fault == HalfOpen || n.fault == Deaf && answers)
}

// end closes a connection that one side has closed, unless the other may not know.
func (n *Net) end(p *pair) {
	n.mu.Lock()
	defer n.mu.Unlock()
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
