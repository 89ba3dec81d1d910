package semelproxy

import (
	"cmp"
	"net"
	"net/http"
	"sync"

	"github.com/semelhq/semel/safehttp"
)

// newTransport returns a transport to one upstream. It ignores proxies in the environment.
func newTransport(o TransportOptions) *safehttp.Transport {
	dialer := net.Dialer{Timeout: cmp.Or(o.DialTimeout, DefaultDialTimeout)}
	maxIdle := cmp.Or(o.MaxIdle, DefaultMaxIdle)
	t := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     o.TLS.Clone(),
		TLSHandshakeTimeout: dialer.Timeout,
		IdleConnTimeout:     cmp.Or(o.IdleTimeout, DefaultIdleTimeout),
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		MaxConnsPerHost:     o.MaxConns,
		DisableCompression:  true, // answers pass unchanged
		Protocols:           new(http.Protocols),
	}
	switch o.Protocol {
	case ProtocolHTTP1:
		t.Protocols.SetHTTP1(true)
	case ProtocolHTTP2:
		t.Protocols.SetHTTP2(true)
	case ProtocolH2C:
		t.Protocols.SetUnencryptedHTTP2(true)
	default:
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
	}
	return &safehttp.Transport{Base: t, Look: !o.Fresh, Fresh: o.Fresh}
}

// buffers are reused for copying answers.
type buffers struct{ pool sync.Pool }

// bufferSize is the size of a buffer; see BenchmarkBuffers.
const bufferSize = 16 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
