package benchproxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/bench/internal/loopback"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/transport/semelhttp"
	"github.com/semelhq/semel/transport/semelproxy"
)

// rig is the upstream and both proxies, each with a listener on loopback.
type rig struct {
	upstream, semel, bare *loopback.Site

	store  *pebblestore.Store
	engine *semel.Engine
	guard  *semelhttp.Guard
	proxy  *semelproxy.Proxy
	direct *http.Transport
}

func newRig(dir string, opts Options) (r *rig, err error) {
	r = new(rig)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.store, err = pebblestore.Open(filepath.Join(dir, "store"), nil); err != nil {
		return r, err
	}
	if r.engine, err = semel.New(r.store, nil); err != nil {
		return r, err
	}
	if r.guard, err = semelhttp.New(r.engine, nil); err != nil {
		return r, err
	}
	if r.upstream, err = loopback.Serve(plainService(opts.AnswerBytes), false); err != nil {
		return r, err
	}
	target := &url.URL{Scheme: "http", Host: r.upstream.Addr()}
	r.proxy, err = semelproxy.New(r.guard, semelproxy.Options{
		Upstream:  target,
		Route:     semelhttp.Route{Operation: semel.Operation{Name: "bench.proxy"}},
		Transport: semelproxy.TransportOptions{MaxIdle: opts.Connections},
	})
	if err != nil {
		return r, err
	}
	if r.semel, err = loopback.Serve(r.proxy, true); err != nil {
		return r, err
	}
	r.direct = &http.Transport{
		MaxIdleConns: opts.Connections, MaxIdleConnsPerHost: opts.Connections,
		IdleConnTimeout: semelproxy.DefaultIdleTimeout, DisableCompression: true,
	}
	r.bare, err = loopback.Serve(bareProxy(target, r.direct), false)
	return r, err
}

// bareProxy is the reverse proxy of the standard library, tuned to be fast.
func bareProxy(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.SetXForwarded()
		},
		Transport: transport, BufferPool: new(bufferPool), ErrorLog: log.New(io.Discard, "", 0),
	}
}

type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }

// plainService reads the body and answers with size bytes of JSON.
func plainService(size int) http.Handler {
	answer := []byte(`"` + strings.Repeat("x", size-2) + `"`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
}

// close closes everything that was made.
func (r *rig) close() error {
	ctx := context.Background()
	var errs []error
	for _, s := range []*loopback.Site{r.semel, r.bare, r.upstream} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if r.direct != nil {
		r.direct.CloseIdleConnections()
	}
	if r.proxy != nil {
		r.proxy.Close()
	}
	if r.guard != nil {
		errs = append(errs, r.guard.Close(ctx))
	}
	if r.engine != nil {
		errs = append(errs, r.engine.Close(ctx))
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	return errors.Join(errs...)
}
