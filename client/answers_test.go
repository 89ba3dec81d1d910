package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/store"
)

// answer is a transport that always gives one answer, and counts the requests, without the ones
// that ask who answers.
func answer(status int, media, body string, sent *int) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Authorization") != "" {
			*sent++
		}
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {media}, "Location": {"http://elsewhere.test/"}, peer.Header: {"data/v1"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	}
}

func TestAnswersThatAreNoneOfTheAPI(t *testing.T) {
	huge := `{"record":"` + strings.Repeat("x", client.DefaultMaxAnswer) + `"}`
	for name, c := range map[string]struct {
		status      int
		media, body string
		sent        int
	}{
		"a page":                         {200, "text/html", "<html>", 1},
		"no media type":                  {200, "", "{}", 1},
		"text that is no JSON":           {200, "application/json", "{", 1},
		"an empty object":                {201, "application/json", "{}", 1},
		"no execution":                   {201, "application/json", `{"decision":"execute","record":{"operation":"op","idempotency_key":"k","status":"processing"}}`, 1},
		"a replay of another call":       {200, "application/json", `{"decision":"replay","record":{"operation":"op","idempotency_key":"k2","status":"completed"}}`, 1},
		"an unknown decision":            {200, "application/json", `{"decision":"perhaps","record":{"operation":"op","idempotency_key":"k","status":"completed"}}`, 1},
		"an unknown state":               {200, "application/json", `{"decision":"replay","record":{"operation":"op","idempotency_key":"k","status":"perhaps"}}`, 1},
		"more than is accepted":          {200, "application/json", huge, 1},
		"a redirect":                     {307, "text/html", "", 1},
		"a redirect to another method":   {303, "application/json", "{}", 1},
		"a page that there is nothing":   {404, "text/html", "<html>", 1},
		"a problem without a code":       {409, "application/problem+json", "{}", 1},
		"a problem in a wrong type":      {409, "application/json", `{"code":"in_flight"}`, 1},
		"a bad gateway":                  {502, "text/html", "<html>", client.DefaultTries},
		"a proxy that is asked too much": {429, "text/plain", "slow down", client.DefaultTries},
		"no content":                     {204, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				cl := newClient(t, answer(c.status, c.media, c.body, &sent))
				_, err := cl.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
					t.Error("executed")
					return semel.Result{}, nil
				})
				e := wantCode(t, err, semel.CodeStoreUnavailable)
				if bad, ok := errors.AsType[*client.AnswerError](e); !ok || bad.Status != c.status {
					t.Errorf("got %v", err)
				}
				if len(err.Error()) > 300 || strings.Contains(err.Error(), "html>") {
					t.Errorf("the body is in the error: %.300s", err)
				}
				if sent != c.sent {
					t.Errorf("sent %d times, want %d", sent, c.sent)
				}
				_, err = cl.Complete(t.Context(), "x.1", data("x"))
				wantCode(t, err, semel.CodeUnknown)
			})
		})
	}
}

// What has no mark of Semel gets no token, whatever it answers, and runs nothing.
func TestStrangersAreNotBelieved(t *testing.T) {
	for status, tries := range map[int]int{200: 1, 201: 1, 307: 1, 404: 1, 500: client.DefaultTries} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			cl := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				asked++
				if r.Header.Get("Authorization") != "" || r.Method != http.MethodGet || r.Body != nil {
					t.Errorf("%d: a stranger got %s %s with the token %q", status, r.Method, r.URL, r.Header.Get("Authorization"))
				}
				body := `{"decision":"execute","execution":"x.1","records":[],"code":"not_found"}`
				return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
			}))
			_, err := cl.Do(t.Context(), call("k"), answers(data("x"), errors.New("executed")))
			e := wantCode(t, err, semel.CodeStoreUnavailable)
			if bad, ok := errors.AsType[*client.AnswerError](e); !ok || bad.Status != status || !strings.Contains(err.Error(), "Semel-Api") || asked != tries {
				t.Errorf("%d: %v, after %d requests", status, err, asked)
			}
			_, err = cl.Search(t.Context(), store.Query{})
			wantCode(t, err, semel.CodeStoreUnavailable)
			_, err = cl.Complete(t.Context(), "x.1", data("x"))
			wantCode(t, err, semel.CodeUnknown)
		})
	}
}

func TestRefusalsKeepTheirCodes(t *testing.T) {
	for _, c := range []struct {
		status, sent int
		code         semel.Code
	}{
		{401, 1, client.CodeUnauthorized}, {403, 1, semel.CodeForbidden}, {413, 1, client.CodeTooLarge}, {400, 1, semel.CodeInvalidCall},
		{429, 4, client.CodeOverloaded}, {503, 4, client.CodeOverloaded}, {408, 4, client.CodeBodyTooSlow}, {503, 4, semel.CodeStoreUnavailable}, {503, 4, semel.CodeClosed}, {429, 1, semel.CodeThrottled},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent, start := 0, time.Now()
				cl := newClient(t, answer(c.status, "application/problem+json", `{"code":"`+string(c.code)+`","detail":"Why.","retry_after":2,"action":"`+string(door.ActionOf(c.code, 0))+`"}`, &sent))
				_, err := cl.Do(t.Context(), call("k"), answers(data("x"), nil))
				if e := wantCode(t, err, c.code); e.RetryAfter != 2*time.Second || e.Action != door.ActionOf(c.code, 0) {
					t.Errorf("got %+v", e)
				}
				if d := time.Since(start); sent != c.sent || d < time.Duration(c.sent-1)*2*time.Second || d > 10*time.Second {
					t.Errorf("sent %d times in %v, want %d", sent, d, c.sent)
				}
			})
		})
	}
	t.Run("a service that is newer says what to do", func(t *testing.T) {
		sent := 0
		cl := newClient(t, answer(409, "application/problem+json", `{"code":"invented","detail":"Why.","action":"new_key"}`, &sent))
		if _, err := cl.Do(t.Context(), call("k"), answers(data("x"), nil)); wantCode(t, err, "invented").Action != store.ActionNewKey {
			t.Error(err)
		}
	})
	t.Run("what a call was throttled by is told", func(t *testing.T) {
		sent := 0
		cl := newClient(t, answer(429, "application/problem+json", `{"code":"throttled","limit":"tenant_bytes","detail":"Why.","retry_after":60}`, &sent))
		ans, err := cl.Do(t.Context(), call("k"), answers(data("x"), nil))
		if e := wantCode(t, err, semel.CodeThrottled); ans.Limit != semel.LimitTenantBytes || ans.RetryAfter != time.Minute || !strings.Contains(e.Message, "bytes") {
			t.Errorf("got %+v, %v", ans, err)
		}
	})
	t.Run("a server that asks for more than is allowed is not waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			cl := newClient(t, answer(503, "application/problem+json", `{"code":"store_unavailable","retry_after":3600}`, &sent))
			_, err := cl.Lookup(t.Context(), id("k"))
			if e := wantCode(t, err, semel.CodeStoreUnavailable); sent != 1 || e.RetryAfter != time.Hour {
				t.Errorf("sent %d times: %+v", sent, e)
			}
		})
	})
	t.Run("a deadline is not slept over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sent, start := 0, time.Now()
			cl := newClient(t, answer(503, "application/problem+json", `{"code":"store_unavailable","retry_after":10}`, &sent))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := cl.Lookup(ctx, id("k"))
			if wantCode(t, err, semel.CodeStoreUnavailable); sent != 1 || time.Since(start) != 0 {
				t.Errorf("sent %d times in %v", sent, time.Since(start))
			}
		})
	})
	t.Run("an operator's word is not repeated", func(t *testing.T) {
		sent := 0
		cl := newClient(t, known(func(*http.Request) (*http.Response, error) {
			sent++
			return nil, errBroken
		}))
		_, err := cl.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionAborted}, "because")
		wantCode(t, err, semel.CodeUnknown)
		wantCode(t, cl.Purge(t.Context(), id("k"), semel.Removal{Reason: "because"}), semel.CodeUnknown)
		if sent != 2 {
			t.Errorf("sent %d times", sent)
		}
	})
}

func TestNothingOfACallIsInTheTextOfAnError(t *testing.T) {
	secret := "a-secret-key"
	c := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) { return nil, errBroken }))
	_, lookupErr := c.Lookup(t.Context(), semel.ID{Operation: "op", Key: secret})
	_, completeErr := c.Complete(t.Context(), secret, data("x"))
	for _, err := range []error{lookupErr, completeErr} {
		if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "semel.test") {
			t.Errorf("got %v", err)
		}
	}
	for _, options := range []client.Options{{Token: "a\nb"}, {Token: "é"}, {Token: "x", TokenFile: "y"}, {Tries: -1}, {TLS: &tls.Config{}, Transport: http.DefaultTransport}, {AdminURL: "ftp://x"}} {
		if _, err := client.New("http://semel.test", &options); err == nil {
			t.Errorf("%+v were taken", options)
		}
	}
	for _, address := range []string{"", "semel.test", "ftp://x", "http://u:pass-word@x", "http://x?y", "http://x#y", "http://\x00"} {
		if _, err := client.New(address, nil); err == nil || strings.Contains(err.Error(), "pass-word") {
			t.Errorf("the address %q: %v", address, err)
		}
	}
}

func TestATokenIsReadFromItsFileEveryTime(t *testing.T) {
	s := newService(t, semel.Operation{Name: "op"})
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte("an-old-token\n"), 0o600))
	c, err := client.New("http://semel.test", &client.Options{TokenFile: path, Transport: direct{s.handler}})
	must(t, err)
	_, err = c.Do(t.Context(), call("k"), answers(data("x"), nil))
	wantCode(t, err, client.CodeUnauthorized)
	must(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
	_, err = c.Do(t.Context(), call("k"), answers(data("x"), nil))
	must(t, err)
	must(t, os.Remove(path))
	if _, err = c.Lookup(t.Context(), id("k")); err == nil {
		t.Error("sent without the token")
	}
	if _, err := client.New("http://semel.test", &client.Options{TokenFile: path}); err == nil {
		t.Error("a token's file that is not there was taken")
	}
}

func TestTLS(t *testing.T) {
	s := newService(t, semel.Operation{Name: "op"})
	var connections atomic.Int32
	srv := httptest.NewUnstartedServer(s.handler)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	t.Run("a server that is not the right one is told apart at once", func(t *testing.T) {
		c, err := client.New(srv.URL, &client.Options{Token: token})
		must(t, err)
		_, err = c.Do(t.Context(), call("k"), answers(data("x"), nil))
		e := wantCode(t, err, semel.CodeStoreUnavailable)
		if _, ok := errors.AsType[*tls.CertificateVerificationError](e); !ok || connections.Load() != 1 {
			t.Errorf("%d connections: %v", connections.Load(), err)
		}
		must(t, c.Close())
	})
	t.Run("a server without TLS is told apart at once", func(t *testing.T) {
		plain := httptest.NewServer(s.handler)
		defer plain.Close()
		c, err := client.New(strings.Replace(plain.URL, "http", "https", 1), &client.Options{Token: token})
		must(t, err)
		_, err = c.Do(t.Context(), call("k"), answers(data("x"), nil))
		if wantCode(t, err, semel.CodeStoreUnavailable); !strings.HasSuffix(err.Error(), "speaks http, not https") {
			t.Error(err)
		}
		must(t, c.Close())
	})
	t.Run("one connection serves many requests", func(t *testing.T) {
		roots := x509.NewCertPool()
		roots.AddCert(srv.Certificate())
		c, err := client.New(srv.URL, &client.Options{Token: token, TLS: &tls.Config{RootCAs: roots}})
		must(t, err)
		connections.Store(0)
		for _, key := range []string{"a", "b", "c"} {
			_, err := c.Do(t.Context(), call(key), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
				return data("x"), x.Renew(ctx)
			})
			must(t, err)
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
		must(t, c.Close())
	})
	t.Run("a service that is not there is out of reach, and nothing is executed", func(t *testing.T) {
		gone := httptest.NewServer(nil)
		gone.Close()
		c, err := client.New(gone.URL, &client.Options{MinPause: time.Millisecond, MaxPause: time.Millisecond})
		must(t, err)
		_, err = c.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
			t.Error("executed")
			return semel.Result{}, nil
		})
		wantCode(t, err, semel.CodeStoreUnavailable)
		_, err = c.Settle(t.Context(), id("k"), semel.Settlement{}, "because")
		wantCode(t, err, semel.CodeStoreUnavailable) // nothing was sent: that is known
	})
}
