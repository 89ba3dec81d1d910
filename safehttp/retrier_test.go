package safehttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/safehttp"
)

// service answers requests in turn, and records them.
type service struct {
	answers []reply
	seen    []seen
	start   time.Time
}

// reply is an answer, or an error if it has no status.
type reply struct {
	status     int
	retryAfter string
}

type seen struct {
	key  string
	body string
	at   time.Duration
}

var errConn = errors.New("connection reset")

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	if r.GetBody != nil {
		return nil, errors.New("GetBody would let net/http send this again")
	}
	s.seen = append(s.seen, seen{r.Header.Get("Idempotency-Key"), string(body), time.Since(s.start)})
	a := s.answers[min(len(s.seen), len(s.answers))-1]
	if a.status == 0 {
		return nil, errConn
	}
	h := http.Header{}
	if a.retryAfter != "" {
		h.Set("Retry-After", a.retryAfter)
	}
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// send posts once through a transport on s, in virtual time.
func send(t *testing.T, s *service, tr *safehttp.Retrier, change func(*http.Request)) (*http.Response, error) {
	t.Helper()
	tr.Base = s
	s.start = time.Now()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://pay.example/", strings.NewReader("charge"))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	resp, err := tr.RoundTrip(r)
	if resp != nil && resp.Request != r {
		t.Error("the answer belongs to another request")
	}
	return resp, err
}

func TestRetrier(t *testing.T) {
	ok := reply{status: 201}
	for _, c := range []struct {
		name    string
		answers []reply
		sent    int
		status  int // of the last answer; zero: an error
	}{
		{"a success is an answer", []reply{ok}, 1, 201},
		{"an error of the connection is tried again", []reply{{}, ok}, 2, 201},
		{"409 with a pause is tried again", []reply{{409, "1"}, ok}, 2, 201},
		{"409 without a pause is an answer", []reply{{409, ""}, ok}, 1, 409},
		{"422 is an answer", []reply{{422, ""}, ok}, 1, 422},
		{"400 is an answer", []reply{{400, "1"}, ok}, 1, 400},
		{"500 is an answer", []reply{{500, ""}, ok}, 1, 500},
		{"429 is tried again", []reply{{429, "2"}, ok}, 2, 201},
		{"502, 503 and 504 are tried again", []reply{{502, ""}, {503, ""}, {504, ""}, ok}, 4, 201},
		{"the last answer is given when attempts run out", []reply{{503, ""}}, 4, 503},
		{"the last error is given when attempts run out", []reply{{}}, 4, 0},
		{"a pause that is too long is given to the caller", []reply{{503, "31"}, ok}, 1, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{answers: c.answers}
				resp, err := send(t, s, &safehttp.Retrier{}, nil)
				if len(s.seen) != c.sent {
					t.Errorf("sent %d times, not %d", len(s.seen), c.sent)
				}
				switch {
				case c.status == 0 && !errors.Is(err, errConn):
					t.Errorf("error %v", err)
				case c.status != 0 && (err != nil || resp.StatusCode != c.status):
					t.Errorf("got %v, %v", resp, err)
				}
				for _, r := range s.seen {
					if _, isV7 := semel.KeyTime(r.key); !isV7 || r.key != s.seen[0].key {
						t.Errorf("key %q", r.key)
					}
					if r.body != "charge" {
						t.Errorf("body %q", r.body)
					}
				}
			})
		})
	}
	t.Run("the server's pause is honoured, in seconds and as a date", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answers: []reply{{503, "7"}, {503, time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)}, ok}}
			if _, err := send(t, s, &safehttp.Retrier{}, nil); err != nil {
				t.Fatal(err)
			}
			if len(s.seen) != 3 || s.seen[1].at != 7*time.Second || s.seen[2].at != 20*time.Second {
				t.Fatalf("%+v", s.seen)
			}
		})
	})
	t.Run("without one the pauses grow and are random in part", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answers: []reply{{}}}
			_, _ = send(t, s, &safehttp.Retrier{MaxAttempts: 4, MinPause: time.Second, MaxPause: 3 * time.Second}, nil)
			bounds := []struct{ least, most time.Duration }{{500e6, 1e9}, {1e9, 2e9}, {1500e6, 3e9}}
			if len(s.seen) != 4 {
				t.Fatalf("sent %d times", len(s.seen))
			}
			for i, b := range bounds {
				if d := s.seen[i+1].at - s.seen[i].at; d < b.least || d > b.most {
					t.Errorf("pause %d is %v, not between %v and %v", i+1, d, b.least, b.most)
				}
			}
		})
	})
	t.Run("the total time is bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answers: []reply{{503, "10"}}}
			resp, err := send(t, s, &safehttp.Retrier{MaxAttempts: 100, MaxTime: 35 * time.Second}, nil)
			if err != nil || resp.StatusCode != 503 || len(s.seen) != 4 {
				t.Fatalf("%v %v %d", resp, err, len(s.seen))
			}
		})
	})
	t.Run("a key that the request has is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answers: []reply{{}, ok}}
			_, err := send(t, s, &safehttp.Retrier{}, func(r *http.Request) { r.Header.Set("Idempotency-Key", "mine") })
			if err != nil || len(s.seen) != 2 || s.seen[0].key != "mine" || s.seen[1].key != "mine" {
				t.Fatalf("%+v %v", s.seen, err)
			}
		})
	})
	t.Run("a made key may be quoted", func(t *testing.T) {
		s := &service{answers: []reply{ok}}
		_, err := send(t, s, &safehttp.Retrier{Quoted: true, NewKey: func() string { return "k" }}, nil)
		if err != nil || s.seen[0].key != `"k"` {
			t.Fatalf("%+v %v", s.seen, err)
		}
	})
	t.Run("the caller's request is left as it was", func(t *testing.T) {
		s := &service{answers: []reply{ok}}
		var mine *http.Request
		_, err := send(t, s, &safehttp.Retrier{}, func(r *http.Request) { mine = r })
		if err != nil || len(mine.Header) != 0 || mine.GetBody == nil {
			t.Fatal(mine.Header, err)
		}
	})
	t.Run("a safe method passes without a key", func(t *testing.T) {
		s := &service{answers: []reply{{}, ok}}
		_, err := send(t, s, &safehttp.Retrier{}, func(r *http.Request) { r.Method, r.GetBody = http.MethodGet, nil })
		if !errors.Is(err, errConn) || len(s.seen) != 1 || s.seen[0].key != "" {
			t.Fatalf("%+v %v", s.seen, err)
		}
	})
	t.Run("a body that can't be opened again is kept for that", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answers: []reply{{}, ok}}
			_, err := send(t, s, &safehttp.Retrier{}, func(r *http.Request) { r.GetBody = nil })
			if err != nil || len(s.seen) != 2 || s.seen[1].body != "charge" {
				t.Fatalf("%+v %v", s.seen, err)
			}
		})
	})
	t.Run("a body that is too large to keep is sent once and whole", func(t *testing.T) {
		s := &service{answers: []reply{{}, ok}}
		_, err := send(t, s, &safehttp.Retrier{MaxBuffer: 3}, func(r *http.Request) { r.GetBody = nil })
		if !errors.Is(err, errConn) || len(s.seen) != 1 || s.seen[0].body != "charge" {
			t.Fatalf("%+v %v", s.seen, err)
		}
	})
	t.Run("a transport that waits no longer tries again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sent, dials := make(chan string, 9), 0
			tr := &safehttp.Retrier{Base: &http.Transport{ResponseHeaderTimeout: 5 * time.Second, DialContext: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				dials++
				answers := dials > 1 // the first one is lost
				go func() {
					r, err := http.ReadRequest(bufio.NewReader(far))
					if err != nil {
						t.Error(err)
						return
					}
					if sent <- r.Header.Get("Idempotency-Key"); answers {
						_, _ = io.WriteString(far, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
					}
				}()
				return near, nil
			}}}
			defer tr.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://pay.example/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(r)
			if err != nil || resp.StatusCode != http.StatusCreated || len(sent) != 2 {
				t.Fatalf("sent %d times, and got %v, %v", len(sent), resp, err)
			}
			if first, second := <-sent, <-sent; first != second {
				t.Errorf("sent under %q and %q", first, second)
			}
		})
	})
	t.Run("an attempt without a connection proves nothing of those before", func(t *testing.T) {
		for answered := range 2 {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				tr := &safehttp.Retrier{Base: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					if dials++; dials > answered {
						return nil, errConn
					}
					near, far := net.Pipe()
					go func() {
						if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
							_ = far.Close() // in the middle of its work
						}
					}()
					return near, nil
				}}}
				defer tr.CloseIdleConnections()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://pay.example/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				_, err = tr.RoundTrip(r)
				if !errors.Is(err, errConn) || safehttp.NothingSent(err) != (answered == 0) {
					t.Errorf("after %d attempts that were sent: %v, and nothing was sent: %v", answered, err, safehttp.NothingSent(err))
				}
			})
		}
	})
	t.Run("a caller that gives up ends the pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			s := &service{answers: []reply{{503, "10"}}}
			_, err := send(t, s, &safehttp.Retrier{}, func(r *http.Request) { *r = *r.WithContext(ctx) })
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(s.start) != 3*time.Second {
				t.Fatal(err, time.Since(s.start))
			}
		})
	})
}

func TestNewKey(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	key := safehttp.NewKey()
	at, ok := semel.KeyTime(key)
	if !ok || at.Before(before) || at.After(time.Now()) {
		t.Fatalf("%s is from %v", key, at)
	}
	if again := safehttp.NewKey(); again == key {
		t.Fatal("the same key twice")
	}
}
