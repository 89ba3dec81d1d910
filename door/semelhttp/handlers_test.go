package semelhttp_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// handlers are the handlers that scripts guard.
var handlers = map[string]func(*world) http.Handler{
	// charge answers with everything that may and may not be replayed.
	"charge": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(err)
		}
		h := rw.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Location", fmt.Sprintf("/charges/%d", n))
		h.Set("Etag", `"v1"`)
		h.Set("X-Charge", strconv.FormatInt(n, 10))
		h.Add("Link", "</terms>; rel=terms")
		h.Set("Set-Cookie", "session=alice")
		h.Set("Www-Authenticate", "Bearer")
		h.Set("Ratelimit-Remaining", "9")
		h.Set("Date", "Mon, 01 Jan 2001 00:00:00 GMT")
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprintf(rw, `{"charge":%d}`, n)
	}),
	// status answers with the status that the delivery asks for.
	"status": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		if said := r.Header.Get("Say-Retry"); said != "" {
			rw.Header().Set("Stripe-Should-Retry", said)
		}
		status, err := strconv.Atoi(r.Header.Get("Answer"))
		if err != nil {
			panic(err)
		}
		rw.Header().Set("Content-Type", "text/plain")
		rw.WriteHeader(status)
		fmt.Fprintf(rw, "run %d", n)
	}),
	// signed has an answer with a signature.
	"signed": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		rw.Header().Set("Signature", fmt.Sprintf("sig1=:run%d:", n))
		rw.Header().Set("Signature-Input", "sig1=()")
		rw.Header().Set("Content-Digest", "sha-256=:x:")
		rw.WriteHeader(http.StatusCreated)
	}),
	// packed has an answer that is compressed.
	"packed": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		rw.Header().Set("Content-Encoding", "gzip")
		rw.Header().Set("Etag", `"packed"`)
		rw.WriteHeader(http.StatusCreated)
		zw := gzip.NewWriter(rw)
		fmt.Fprintf(zw, "run %d", n)
		if err := zw.Close(); err != nil {
			panic(err)
		}
	}),
	// slow waits until it is released.
	"slow": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		w.wait()
		fmt.Fprintf(rw, "run %d, told to stop: %t", n, r.Context().Err() != nil)
	}),
	// obedient works until it is told to stop.
	"obedient": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		<-r.Context().Done()
		http.Error(rw, fmt.Sprintf("run %d: %v", n, context.Cause(r.Context())), http.StatusGatewayTimeout)
	}),
	// echo answers with the body that it was sent.
	"echo": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		w.run()
		rw.Header().Set("Content-Type", "text/plain")
		if _, err := io.Copy(rw, r.Body); err != nil {
			panic(err)
		}
	}),
	// length reads the body and answers with its length.
	"length": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		size, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(rw, "run %d: %d bytes, %v", n, size, err)
	}),
	// panics panics in its first run.
	"panics": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		if n := w.run(); n > 1 {
			fmt.Fprintf(rw, "run %d", n)
			return
		}
		rw.WriteHeader(http.StatusCreated)
		panic("half-way")
	}),
	// aborts gives up its connection in its first run.
	"aborts": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		if n := w.run(); n > 1 {
			fmt.Fprintf(rw, "run %d", n)
			return
		}
		panic(http.ErrAbortHandler)
	}),
	// effect makes one external call, and the delivery decides what happens to it.
	"effect": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		a, ok := semelhttp.Attempt(r.Context())
		if !ok {
			panic("no attempt")
		}
		fate := r.Header.Get("Fate")
		id, err := semel.Effect(r.Context(), a, "charge", func(context.Context, string) (string, error) {
			switch fate {
			case "lost":
				return "", errors.New("timeout")
			case "refused":
				return "", semel.Aborted(errors.New("no connection"))
			}
			return fmt.Sprintf("charged in run %d", n), nil
		})
		rw.Header().Set("Set-Cookie", "session=alice")
		rw.Header().Set("Location", "/charges/1")
		switch {
		case r.Header.Get("Then") == "panic":
			panic("after the effect")
		case err != nil && r.Header.Get("Then") == "pretend":
			fmt.Fprint(rw, "all is well")
		case fate == "refused":
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			http.Error(rw, err.Error(), http.StatusBadGateway)
		default:
			fmt.Fprintf(rw, "run %d: %s", n, id)
		}
	}),
	// stream flushes between its two parts; it fails in the middle if asked to.
	"stream": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(rw, "run %d\n", n)
		if err := http.NewResponseController(rw).Flush(); err != nil {
			panic(err)
		}
		if r.Header.Get("Fate") == "panic" {
			panic("half-way")
		}
		fmt.Fprint(rw, "end")
	}),
	// outage loses the store just when it flushes.
	"outage": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		fmt.Fprintf(rw, "run %d", n)
		w.store.down.Store(true)
		if err := http.NewResponseController(rw).Flush(); err == nil {
			panic("flushed without a record of it")
		}
		w.store.down.Store(false)
		if _, err := rw.Write([]byte("more")); err == nil {
			panic("went on without a record of it")
		}
	}),
	// large answers with as many bytes as the delivery asks for.
	"large": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		size, err := strconv.Atoi(r.Header.Get("Size"))
		if err != nil {
			panic(err)
		}
		if s := r.Header.Get("Answer"); s != "" {
			status, err := strconv.Atoi(s)
			if err != nil {
				panic(err)
			}
			rw.WriteHeader(status)
		}
		body := strconv.FormatInt(n, 10) + strings.Repeat("x", size-1)
		if r.Header.Get("By") == "copy" {
			if _, err := io.Copy(rw, strings.NewReader(body)); err != nil {
				panic(err)
			}
			return
		}
		for part := range strings.SplitAfterSeq(body, "xxxxxxxxxxxxxxxx") {
			if _, err := io.WriteString(rw, part); err != nil {
				return
			}
		}
	}),
	// hijack takes the connection over.
	"hijack": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		w.run()
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
		_ = buf.Flush()
	}),
	// early sends 103 before its answer.
	"early": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		rw.Header().Set("Link", "</style.css>; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		rw.Header().Del("Link")
		rw.Header().Set("Content-Type", "text/plain")
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprintf(rw, "run %d", n)
	}),
	// trailers sends two trailers, one declared before and one not.
	"trailers": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		rw.Header().Set("Trailer", "X-Digest")
		fmt.Fprintf(rw, "run %d", n)
		rw.Header().Set("X-Digest", "abc")
		rw.Header().Set("X-Late", "not a trailer")
		rw.Header().Set(http.TrailerPrefix+"X-More", "def")
	}),
	// bodyless writes a body where the status allows none.
	"bodyless": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		status, err := strconv.Atoi(r.Header.Get("Answer"))
		if err != nil {
			panic(err)
		}
		rw.Header().Set("Etag", fmt.Sprintf(`"run-%d"`, n))
		rw.WriteHeader(status)
		if _, err := rw.Write([]byte("nothing")); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic("a body was accepted")
		}
	}),
	// silent answers nothing at all.
	"silent": serve(func(w *world, rw http.ResponseWriter, r *http.Request) { w.run() }),
	// wronglength declares another length than its body has.
	"wronglength": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		rw.Header().Set("Content-Length", "3")
		fmt.Fprintf(rw, "run %d", n)
	}),
	// vary changes headers that were set around the guard.
	"vary": serve(func(w *world, rw http.ResponseWriter, r *http.Request) {
		n := w.run()
		rw.Header().Del("X-Request-Id")
		rw.Header().Set("Content-Type", "text/plain")
		rw.Header().Add("Content-Language", "de")
		rw.Header().Add("Content-Language", "en")
		fmt.Fprintf(rw, "run %d", n)
		rw.Header().Set("Content-Type", "too/late")
	}),
}

func serve(f func(*world, http.ResponseWriter, *http.Request)) func(*world) http.Handler {
	return func(w *world) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { f(w, rw, r) })
	}
}
