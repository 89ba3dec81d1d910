package semelhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

// The three benchmarks answer the same request with the same handler: bare, guarded for
// the first time, and as a duplicate. First less Bare is what the guard adds to a first
// execution. The guarded one gets a new engine with an empty store whenever its keys are
// used up, so that it uses memory as a process that purges does.

var benchBody = []byte(`{"amount":1250,"currency":"EUR","customer":"cus_9s6XKzkNRiz8i3","description":"Order 4711, 2 pieces"}`)

type benchValue struct{}

// plainWriter is a minimal http.ResponseWriter.
type plainWriter struct {
	header http.Header
	status int
	n      int
}

func (w *plainWriter) Header() http.Header         { return w.header }
func (w *plainWriter) WriteHeader(status int)      { w.status = status }
func (w *plainWriter) Write(p []byte) (int, error) { w.n += len(p); return len(p), nil }

// rewinder is a request body that can be read again.
type rewinder struct{ bytes.Reader }

func (*rewinder) Close() error { return nil }

func benchHandler() http.Handler {
	answer := []byte(`{"id":"ch_1","status":"succeeded"}`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var buf [256]byte
		for {
			if _, err := r.Body.Read(buf[:]); err == io.EOF {
				break
			} else if err != nil {
				panic(err)
			}
		}
		if r.Context().Value(benchValue{}) != nil { // as most handlers look for something
			panic("a value that nobody has set")
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/charges/ch_1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
}

func benchGuarded(b *testing.B) http.Handler {
	b.Helper()
	e, err := semel.New(memstore.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	g, err := semelhttp.New(e, nil)
	if err != nil {
		b.Fatal(err)
	}
	return g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}}, benchHandler())
}

func benchRun(b *testing.B, fresh func() http.Handler, keys []string, want int) {
	b.Helper()
	body := new(rewinder)
	key := make([]string, 1)
	header := http.Header{
		"Idempotency-Key": key, "Content-Type": {"application/json"}, "Authorization": {"Bearer sk_test_4eC39HqLyjWDarjtT1zdp7dc"},
	}
	r := &http.Request{
		Method: "POST", URL: &url.URL{Path: "/charges"}, RequestURI: "/charges", Header: header, Body: body, ContentLength: int64(len(benchBody)),
		RemoteAddr: "192.0.2.1:4711",
	}
	w := &plainWriter{header: http.Header{}}
	b.ReportAllocs()
	i := 0
	var h http.Handler
	for b.Loop() {
		if i%len(keys) == 0 && (i == 0 || len(keys) > 1) {
			h = fresh()
		}
		body.Reset(benchBody)
		key[0] = keys[i%len(keys)]
		clear(w.header)
		h.ServeHTTP(w, r)
		if w.status != want {
			b.Fatal(w.status)
		}
		i++
	}
	if marked := w.header.Get("Idempotency-Replayed") != ""; marked != (i > 1 && len(keys) == 1) && i <= len(keys) {
		b.Fatal("replayed", marked)
	}
}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "8e03978e-40d5-43dd-bc93-" + strconv.Itoa(1e11+i)
	}
	return keys
}

func BenchmarkBare(b *testing.B) { benchRun(b, benchHandler, []string{"k"}, http.StatusCreated) }

func BenchmarkFirst(b *testing.B) {
	benchRun(b, func() http.Handler { return benchGuarded(b) }, benchKeys(8192), http.StatusCreated)
}

func BenchmarkReplay(b *testing.B) {
	benchRun(b, func() http.Handler { return benchGuarded(b) }, []string{"k"}, http.StatusCreated)
}
