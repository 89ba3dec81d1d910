package semelhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// TestStrangersCannotKeepACallFromItsOwner holds the sentence of SECURITY.md "Whoever asks
// all the time with credentials that the upstream refuses gets no more turns than its owner":
// here they have twelve connections and pause nowhere, and the upstream takes 150 ms to refuse.
func TestStrangersCannotKeepACallFromItsOwner(t *testing.T) {
	const key, owner = "invoice-2026-11-23-000042", "192.0.2.1:1"
	for name, addr := range map[string]func(i int) string{
		"from one other network":   func(int) string { return "198.51.100.7:1" },
		"from the owner's network": func(int) string { return owner },
		"from twelve networks":     func(i int) string { return fmt.Sprintf("198.51.100.%d:1", i) },
	} {
		for _, keyFrom := range []string{"", "header:X-Key"} { // known before the body is read, or after it
			t.Run(name+" "+keyFrom, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt := semelhttp.Route{Operation: semel.Operation{Name: "op"}, Forwards: true}
					header := semelhttp.DefaultKeyHeader
					if keyFrom != "" {
						header, rt.KeyFrom = "X-Key", []string{keyFrom}
					}
					h := newGuard(t, newEngine(t, nil), nil).Handler(rt, checksPasswords())
					send := func(from, who string) int { return sendTo(h, header, key, from, who, strings.NewReader("{}")) }
					var stop atomic.Bool
					var strangers sync.WaitGroup
					for i := range 12 {
						strangers.Go(func() {
							for n := 0; !stop.Load(); n++ {
								send(addr(i), fmt.Sprintf("made-up-%d-%d", i, n))
								<-time.After(time.Millisecond)
							}
						})
					}
					<-time.After(time.Second)
					var got []int
					for len(got) == 0 || got[len(got)-1] != http.StatusCreated && len(got) < 10 {
						got = append(got, send(owner, "owner"))
						<-time.After(500 * time.Millisecond)
					}
					stop.Store(true)
					strangers.Wait()
					if len(got) > 2 {
						t.Errorf("the owner got %v", got)
					}
				})
			})
		}
	}
}

// checksPasswords refuses every credential but the owner's, after a while.
func checksPasswords() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer owner" {
			<-time.After(150 * time.Millisecond)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
}

func sendTo(h http.Handler, header, key, from, who string, body io.Reader) int {
	r := httptest.NewRequest("POST", "/", body)
	r.RemoteAddr = from
	r.Header.Set(header, key)
	r.Header.Set("Authorization", "Bearer "+who)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// slowly is a body that comes after a while, if anybody reads it.
type slowly struct {
	takes time.Duration
	reads *atomic.Int64
}

func (s slowly) Read([]byte) (int, error) {
	s.reads.Add(1)
	<-time.After(s.takes)
	return 0, io.EOF
}

// Nothing is read of a delivery that waits, and one whose turn has come doesn't keep the next
// one waiting by sending slowly.
func TestWhoWaitsIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan int)
		h := newGuard(t, newEngine(t, nil), nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(<-answer) }))
		var reads atomic.Int64
		codes := map[string]chan int{}
		send := func(who string, takes time.Duration) {
			codes[who] = make(chan int, 1)
			go func() {
				codes[who] <- sendTo(h, semelhttp.DefaultKeyHeader, unguessable, who+":1", who, slowly{takes, &reads})
			}()
			synctest.Wait()
		}
		send("192.0.2.1", 0)
		if reads.Swap(0) == 0 {
			t.Error("the first body isn't read")
		}
		send("192.0.2.2", time.Minute)
		send("192.0.2.3", 0)
		if n := reads.Load(); n != 0 {
			t.Errorf("%d reads of bodies of those who wait", n)
		}
		answer <- http.StatusUnauthorized
		began := time.Now()
		answer <- http.StatusCreated // for the third, in place of the second, who is still sending
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the third's turn came after %v", took)
		}
		got := map[string]int{"1": <-codes["192.0.2.1"], "2": <-codes["192.0.2.2"], "3": <-codes["192.0.2.3"]}
		if got["1"] != 401 || got["2"] != 409 || got["3"] != 201 {
			t.Error(got)
		}
	})
}

// A caller who asks again, with the same credential, learns at once how the first delivery is
// doing, and so does one who can't wait.
func TestWhoDoesNotWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan int)
		e := newEngine(t, nil)
		guard := newGuard(t, e, nil)
		h := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(<-answer) }))
		first := make(chan int, 1)
		go func() {
			first <- sendTo(h, semelhttp.DefaultKeyHeader, unguessable, "192.0.2.1:1", "a", strings.NewReader("1"))
		}()
		synctest.Wait()
		began := time.Now()
		if code := sendTo(h, semelhttp.DefaultKeyHeader, unguessable, "192.0.2.1:1", "a", strings.NewReader("1")); code != http.StatusConflict {
			t.Error(code)
		}
		if code := sendTo(h, semelhttp.DefaultKeyHeader, unguessable, "192.0.2.1:1", "a", strings.NewReader("2")); code != http.StatusUnprocessableEntity {
			t.Error(code)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("they waited %v", took)
		}
		if code := sendTo(h, semelhttp.DefaultKeyHeader, unguessable, "192.0.2.2:1", "b", errReader{}); code != http.StatusConflict || time.Since(began) != 5*time.Second {
			t.Errorf("%d after %v", code, time.Since(began))
		}
		answer <- http.StatusCreated
		if code := <-first; code != http.StatusCreated {
			t.Error(code)
		}
	})
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("read") }
