package semelhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// serveLoopback serves one guarded handler on a real connection.
func serveLoopback(t *testing.T, opts *semelhttp.Options, rt semelhttp.Route, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	if rt.Operation.Name == "" {
		rt.Operation.Name = "op"
	}
	srv := httptest.NewUnstartedServer(newGuard(t, newEngine(t, nil), opts).Handler(rt, h))
	srv.Config.ErrorLog = discardLog
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// post sends one request by srv's client and returns status, header and body.
func post(t *testing.T, srv *httptest.Server, key, contentType string, body io.Reader) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/charges", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", contentType)
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// raw sends bytes, closes its side, and returns the answer's first line.
func raw(t *testing.T, srv *httptest.Server, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestBodiesThatEndEarly(t *testing.T) {
	const head = "POST /charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
	for _, c := range []struct{ name, request string }{
		{"a body shorter than its length", head + "Content-Length: 100\r\n\r\nonly this"},
		{"a chunk that is cut off", head + "Transfer-Encoding: chunked\r\n\r\n10\r\nonly this"},
		{"chunks without their end", head + "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"},
		{"a chunk with a bad length", head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nabcd\r\n0\r\n\r\n"},
		{"a large body that is cut off in the file", head + "Content-Length: 200000\r\n\r\n" + strings.Repeat("x", 100_000)},
	} {
		t.Run(c.name+" is refused and claims nothing", func(t *testing.T) {
			var runs atomic.Int64
			dir := t.TempDir()
			srv := serveLoopback(t, &semelhttp.Options{TempDir: dir}, semelhttp.Route{}, charged(&runs))
			if got := raw(t, srv, c.request); got != "HTTP/1.1 400 Bad Request" {
				t.Fatal(got)
			}
			resp, _ := post(t, srv, "k", "text/plain", strings.NewReader("whole"))
			if resp.StatusCode != http.StatusCreated || resp.Header.Get("Idempotency-Replayed") != "" || runs.Load() != 1 {
				t.Fatal(resp.Status, runs.Load())
			}
			srv.Close()
			noFiles(t, dir)
		})
	}
}

func noFiles(t *testing.T, dir string) {
	t.Helper()
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) > 0 {
		t.Error("left behind:", files, err)
	}
}

func TestTemporaryFiles(t *testing.T) {
	t.Run("a large body is read from a file that is gone afterwards", func(t *testing.T) {
		dir := t.TempDir()
		sent := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
		srv := serveLoopback(t, &semelhttp.Options{TempDir: dir}, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
			if runtime.GOOS != "windows" { // which can't remove open files
				noFiles(t, dir)
			}
			var got bytes.Buffer
			if _, err := io.Copy(&got, r.Body); err != nil || !bytes.Equal(got.Bytes(), sent) {
				t.Errorf("got %d bytes, %v", got.Len(), err)
			}
			if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Error("after the end:", n, err)
			}
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
			if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Error("after Close:", err)
			}
		})
		if resp, _ := post(t, srv, "k", "application/octet-stream", bytes.NewReader(sent)); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		srv.Close()
		noFiles(t, dir)
	})
	t.Run("a directory that is gone refuses large bodies only", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "gone")
		var runs, told atomic.Int64
		e := newEngine(t, &semel.Options{Events: &semel.Events{Troubled: func(semel.Troubled) { told.Add(1) }}})
		srv := httptest.NewServer(newGuard(t, e, &semelhttp.Options{TempDir: dir}).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, charged(&runs)))
		defer srv.Close()
		resp, _ := post(t, srv, "k", "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
		if resp.StatusCode != http.StatusServiceUnavailable || runs.Load() != 0 || told.Load() != 1 {
			t.Fatal(resp.Status, runs.Load(), told.Load())
		}
		if resp, _ := post(t, srv, "k", "text/plain", strings.NewReader("small")); resp.StatusCode != http.StatusCreated {
			t.Fatal(resp.Status)
		}
	})
	t.Run("files of a parsed form are removed", func(t *testing.T) {
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("file", "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		if err := form.Close(); err != nil {
			t.Fatal(err)
		}
		srv := serveLoopback(t, nil, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1); err != nil {
				t.Error(err)
			}
			if entries, err := os.ReadDir(tmp); err != nil || len(entries) == 0 {
				t.Error("the form made no file, so nothing is shown:", err)
			}
		})
		if resp, _ := post(t, srv, "k", form.FormDataContentType(), &body); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		srv.Close()
		noFiles(t, tmp)
	})
}

func TestClientThatHangsUp(t *testing.T) {
	entered, release, finished := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var runs atomic.Int64
	srv := serveLoopback(t, nil, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		close(entered)
		<-release
		finished <- r.Context().Err()
		fmt.Fprint(w, "done")
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/charges", strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "text/plain")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if _, err := srv.Client().Do(r); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	<-entered
	cancel()
	<-gone
	close(release)
	if err := <-finished; err != nil {
		t.Error("the handler was told to stop:", err)
	}
	r2 := r.Clone(t.Context())
	r2.Body = io.NopCloser(strings.NewReader("1"))
	r2.Header.Set("Prefer", "wait=10")
	resp, err := srv.Client().Do(r2)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "done" || resp.Header.Get("Idempotency-Replayed") != "true" || runs.Load() != 1 {
		t.Fatalf("%s %s, %d runs", resp.Status, body, runs.Load())
	}
}

func TestResponseController(t *testing.T) {
	var runs atomic.Int64
	flushed := make(chan struct{})
	srv := serveLoopback(t, nil, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		rc := http.NewResponseController(w)
		if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error("SetWriteDeadline:", err)
		}
		if err := rc.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error("SetReadDeadline:", err)
		}
		fmt.Fprint(w, "first ")
		w.(http.Flusher).Flush()
		<-flushed // the client has the first part while the handler is at work
		file, err := os.Open("testdata/first.txt")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		if n, err := w.(io.ReaderFrom).ReadFrom(file); err != nil || n == 0 {
			t.Error("ReadFrom:", n, err)
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/charges", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	part := make([]byte, 6)
	if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "first " {
		t.Fatalf("%q %v", part, err)
	}
	close(flushed)
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := os.ReadFile("testdata/first.txt"); !bytes.Equal(rest, want) {
		t.Fatalf("%d bytes instead of %d", len(rest), len(want))
	}
	if again, _ := post(t, srv, "k", "", nil); again.StatusCode != http.StatusGone || runs.Load() != 1 {
		t.Fatal(again.Status, runs.Load())
	}
}

func TestWriterThatCanDoLess(t *testing.T) {
	// plainWriter can neither flush nor be hijacked. The handler gets the error, and its
	// answer doesn't change.
	h := newGuard(t, newEngine(t, nil), nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Error("Flush:", err)
		}
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Error("Hijack:", err)
		}
		fmt.Fprint(w, "done")
	}))
	for range 2 {
		w := &plainWriter{header: http.Header{}}
		r := httptest.NewRequest(http.MethodPost, "/charges", nil)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("Authorization", "Bearer alice")
		h.ServeHTTP(w, r)
		if w.status != http.StatusOK || w.n != len("done") {
			t.Fatal(w.status, w.n)
		}
	}
}

func TestHandlerThatGoesOnAfterReturning(t *testing.T) {
	var kept http.ResponseWriter
	var body io.ReadCloser
	h := newGuard(t, newEngine(t, nil), nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept, body = w, r.Body
		fmt.Fprint(w, "done")
	}))
	w := call(h, "k", "1", nil)
	if _, err := kept.Write([]byte("late")); err == nil {
		t.Error("a late write was accepted")
	}
	if err := http.NewResponseController(kept).Flush(); err == nil {
		t.Error("a late flush was accepted")
	}
	if _, _, err := http.NewResponseController(kept).Hijack(); err == nil {
		t.Error("a late hijack was accepted")
	}
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Error("a late read:", err)
	}
	if w.Body.String() != "done" {
		t.Error(w.Body)
	}
}

// TestCrashWhilePassingThrough leaves an attempt as a dying process does, and takes over
// with another engine on the same store.
func TestCrashWhilePassingThrough(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		status int
	}{
		{"before the first byte the call runs again", func(w http.ResponseWriter) { fmt.Fprint(w, "first") }, http.StatusOK},
		{"after the first byte it is held", func(w http.ResponseWriter) {
			fmt.Fprint(w, "first")
			_ = http.NewResponseController(w).Flush()
		}, http.StatusConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memstore.New()
			e, err := semel.New(store, nil)
			if err != nil {
				t.Fatal(err)
			}
			rt := semelhttp.Route{Operation: semel.Operation{Name: "op", OnAbandoned: semel.RetryAbandoned}}
			var got int
			dying := newGuard(t, e, nil).Handler(rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.answer(w)
				// The rest happens in another process, once this one's lease has ended.
				store.Advance(time.Hour)
				e2, err := semel.New(store, nil)
				if err != nil {
					t.Error(err)
					return
				}
				successor := newGuard(t, e2, nil).Handler(rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
				got = call(successor, "k", "1", nil).Code
			}))
			call(dying, "k", "1", nil)
			if got != c.status {
				t.Fatalf("the next delivery got %d, not %d", got, c.status)
			}
		})
	}
}

func TestHolderThatWasReplaced(t *testing.T) {
	store := memstore.New()
	e, err := semel.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	var h http.Handler
	runs := 0
	h = newGuard(t, e, &semelhttp.Options{StatusPath: "/status/"}).Handler(semelhttp.Route{
		Operation: semel.Operation{Name: "op", OnAbandoned: semel.RetryAbandoned},
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		fmt.Fprintf(w, "run %d", runs)
		if runs == 1 {
			store.Advance(time.Hour)
			if w := call(h, "k", "1", nil); w.Body.String() != "run 2" {
				t.Error(w.Body)
			}
		}
	}))
	w := call(h, "k", "1", nil)
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), `"code":"lease_lost"`) || w.Header().Get("Retry-After") == "" {
		t.Fatal(w.Code, w.Body)
	}
	if w := call(h, "k", "1", nil); w.Body.String() != "run 2" || w.Header().Get("Idempotency-Replayed") != "true" {
		t.Fatal(w.Body)
	}
}

func TestSettledByAnother(t *testing.T) {
	settle := func(t *testing.T, s semel.Settlement) *httptest.ResponseRecorder {
		t.Helper()
		e := newEngine(t, nil)
		var id semel.ID
		h := newGuard(t, e, nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}, KeepHeaders: []string{"X-Charge"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, _ := semelhttp.Attempt(r.Context())
			id = a.ID()
			panic("half-way")
		}))
		func() {
			defer func() {
				if v := recover(); v != "half-way" {
					t.Errorf("the panic became %v", v)
				}
			}()
			call(h, "k", "1", nil)
		}()
		if _, err := e.Settle(t.Context(), id, s, "looked it up"); err != nil {
			t.Fatal(err)
		}
		return call(h, "k", "1", nil)
	}
	t.Run("with an answer, duplicates get it", func(t *testing.T) {
		header := http.Header{"Content-Type": {"text/plain"}, "Location": {"/charges/7"}, "X-Charge": {"7"}, "X-Other": {"not kept"}, "Set-Cookie": {"a=b"}, "Date": {"now"}}
		w := settle(t, semel.Settlement{Outcome: semel.DispositionCompleted, Result: semelhttp.NewResult(http.StatusCreated, header, []byte("charged"))})
		h := w.Header()
		if w.Code != http.StatusCreated || w.Body.String() != "charged" || h.Get("Location") != "/charges/7" || h.Get("X-Charge") != "7" ||
			h.Get("Idempotency-Replayed") != "true" || h.Get("Set-Cookie") != "" || h.Get("X-Other") != "" || h.Get("Date") != "" {
			t.Fatal(w.Code, h, w.Body)
		}
	})
	for _, c := range []struct {
		name   string
		s      semel.Settlement
		status int
		code   string
	}{
		{"as completed without an answer, they are told so", semel.Settlement{Outcome: semel.DispositionCompleted}, http.StatusGone, "result_not_kept"},
		{"with a result of another kind, they are told so", semel.Settlement{
			Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte(`{"id":7}`)},
		}, http.StatusGone, "result_not_kept"},
		{"as completed, nobody says that there was an answer", semel.Settlement{Outcome: semel.DispositionCompleted}, http.StatusGone, "settled as completed, and its answer isn't known"},
		{"as rejected without a reason, they are told so", semel.Settlement{Outcome: semel.DispositionRejected}, http.StatusUnprocessableEntity, "settled as rejected"},
		{"as rejected, they are told why", semel.Settlement{
			Outcome: semel.DispositionRejected, Failure: &store.Failure{Code: "declined", Message: "the card was declined"},
		}, http.StatusUnprocessableEntity, "The card was declined."},
	} {
		t.Run(c.name, func(t *testing.T) {
			if w := settle(t, c.s); w.Code != c.status || !strings.Contains(w.Body.String(), c.code) {
				t.Fatal(w.Code, w.Body)
			}
		})
	}
	t.Run("as aborted, the next one runs", func(t *testing.T) {
		defer func() {
			if v := recover(); v != "half-way" {
				t.Fatalf("it did not run: %v", v)
			}
		}()
		settle(t, semel.Settlement{Outcome: semel.DispositionAborted})
	})
}
