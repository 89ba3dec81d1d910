package servertest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// taken has the ports that FreePort has returned: their servers may not listen yet.
var taken struct {
	sync.Mutex
	ports map[int]bool
}

// Ports are below the range that systems take from for connections and for port 0: one of these
// might take a port before its server listens.
const lowestPort, highestPort = 15000, 32000

// FreePort is a port of the loopback interface on which nobody listens, for a server that can't
// choose one by itself.
func FreePort(tb testing.TB) int {
	tb.Helper()
	taken.Lock()
	defer taken.Unlock()
	if taken.ports == nil {
		taken.ports = map[int]bool{}
	}
	var failed error
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if taken.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			failed = err // in use
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		taken.ports[port] = true
		return port
	}
	tb.Fatalf("no port is free: %v", failed)
	return 0
}
