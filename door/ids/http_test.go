package ids_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
)

// request is a request of alice's with headers of its own.
func (s *shop) request(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", alice)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.gateway.ServeHTTP(w, r)
	return w
}

func TestHTTP(t *testing.T) {
	const envelope = `{"tenant_id":"acme","actor_id":"alice","command_id":"c-1","intent":{"entity":"refund","action":"create"}}`

	t.Run("a body that is not JSON in UTF-8 is not read", func(t *testing.T) {
		s := newShop(t)
		for _, header := range [][]string{
			{"Content-Type", "application/x-www-form-urlencoded"},
			{"Content-Type", "text/plain"},
			{"Content-Type", "application/json; charset=utf-16"},
			{"Content-Type", "application/json; charset"},
			{"Content-Encoding", "gzip"},
		} {
			for _, path := range []string{"/v1/commands", "/v1/commands/x/compensate"} {
				if w := s.request("POST", path, envelope, header...); w.Code != http.StatusUnsupportedMediaType || !strings.Contains(w.Body.String(), `"unsupported_media_type"`) {
					t.Errorf("%s with %q: %d, %s", path, header, w.Code, w.Body)
				}
			}
		}
		if len(s.ran) != 0 {
			t.Errorf("it ran %v", s.ran)
		}
	})

	t.Run("JSON is known by any of its names", func(t *testing.T) {
		s := newShop(t)
		for i, media := range []string{"application/json", "Application/JSON; charset=UTF-8", "application/vnd.commands+json"} {
			body := strings.Replace(envelope, "c-1", fmt.Sprintf("c-%d", i), 1)
			if w := s.request("POST", "/v1/commands", body, "Content-Type", media); w.Code != http.StatusOK {
				t.Errorf("%s: %d, %s", media, w.Code, w.Body)
			}
		}
	})

	t.Run("each place has its methods", func(t *testing.T) {
		s := newShop(t)
		for path, allow := range map[string]string{"/v1/commands": "POST", "/v1/commands/x": "GET, HEAD", "/v1/commands/x/compensate": "POST"} {
			for _, method := range []string{"OPTIONS", "DELETE", "PUT"} {
				if w := s.request(method, path, ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != allow {
					t.Errorf("%s %s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
				}
			}
		}
	})

	t.Run("a path that only begins like that of commands is another", func(t *testing.T) {
		s := newShop(t)
		for _, path := range []string{"/v1/commandsx", "/v1/commands.json", "/v1/commands/x/compensate/y"} {
			if w := s.request("POST", path, envelope); w.Code != http.StatusNotFound {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
	})

	t.Run("a question about a command is answered, whatever became of it", func(t *testing.T) {
		s := newShop(t)
		for kind, status := range map[string]ids.Status{
			"order.refuse": ids.StatusRejected, "order.lose": ids.StatusInProgress, "order.retry": ids.StatusFailed,
		} {
			first := s.command("alice", kind, `,"actor_id":"alice"`)
			got := s.send("alice", "GET", first.StatusURL, "")
			if got.ResponseRecorder.Code != http.StatusOK || got.Response.Status != status || got.Decision != "" {
				t.Errorf("%s: %d, %s", kind, got.ResponseRecorder.Code, got.Body)
			}
			if head := s.request("HEAD", first.StatusURL, ""); head.Code != http.StatusOK || head.Header().Get("Retry-After") != got.Header().Get("Retry-After") {
				t.Errorf("HEAD %s: %d", kind, head.Code)
			}
		}
	})

	t.Run("an answer is not much larger than what is wrong with the envelope", func(t *testing.T) {
		s := newShop(t)
		var many strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&many, `,"x%d":1`, i)
		}
		long := strings.Repeat("n", 100_000)
		for name, body := range map[string]string{
			"many members": strings.Replace(envelope, `}}`, `}`+many.String()+`}`, 1),
			"a long name":  strings.Replace(envelope, `}}`, `},"`+long+`":1}`, 1),
			"many targets": strings.Replace(envelope, `"create"`, `"create","target":[0`+strings.Repeat(",0", 900)+`]`, 1),
		} {
			if w := s.request("POST", "/v1/commands", body); w.Code != http.StatusBadRequest || w.Body.Len() > 16<<10 {
				t.Errorf("%s: %d with %d bytes", name, w.Code, w.Body.Len())
			}
		}
	})

	t.Run("the reason of a compensation is read strictly", func(t *testing.T) {
		s := newShop(t)
		paid := s.command("alice", "card.pay", `,"actor_id":"alice"`)
		for _, body := range []string{`[]`, `{"reason":1}`, `{"reason":"a","reason":"b"}`, `{"because":"a"}`, `{"reason":"` + strings.Repeat("a", 2000) + `"}`} {
			s.refused(s.send("alice cards:repay", "POST", paid.StatusURL+"/compensate", body), 400, semel.CodeInvalidCall)
		}
		s.want(s.send("alice cards:repay", "POST", paid.StatusURL+"/compensate", `{"reason":""}`), 200, ids.StatusCompensated, "repay", 1)
	})

	t.Run("who has no Identify lets nobody in", func(t *testing.T) {
		g := bare(t, `{entity: order, action: show, mutates: false, handler: {url: 'http://127.0.0.1:1/'}}`, nil)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("POST", "/v1/commands", strings.NewReader(envelope)))
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%d, %s", w.Code, w.Body)
		}
	})
}
