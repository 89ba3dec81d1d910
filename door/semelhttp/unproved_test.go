package semelhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// signing is a service behind a guard whose callers sign each request anew.
type signing struct {
	handler, status http.Handler
	decided         []semel.Decided
	runs            int
	answer          int // the status of the service; 201 if zero
	tries           int
	during          func() // while the first call runs
}

func newSigning(t *testing.T, rt semelhttp.Route) *signing {
	t.Helper()
	s := &signing{}
	e := newEngine(t, &semel.Options{Events: &semel.Events{Decided: func(e semel.Decided) { s.decided = append(s.decided, e) }}})
	g := newGuard(t, e, &semelhttp.Options{StatusPath: "/status/"})
	rt.Operation.Name = "op"
	s.handler = g.Handler(rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.runs++; s.during != nil {
			s.during()
		}
		if s.answer != 0 {
			w.WriteHeader(s.answer)
		}
		fmt.Fprint(w, "secret")
	}))
	s.status = g.Status()
	return s
}

// sign signs a request, as nobody has before.
func (s *signing) sign(keyID string) func(*http.Request) {
	s.tries++
	return func(r *http.Request) {
		r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/20261125/us-east-1/execute-api/aws4_request, SignedHeaders=host;x-amz-date, Signature=%064x", keyID, s.tries))
	}
}

func (s *signing) send(key, body, keyID string) *httptest.ResponseRecorder {
	return call(s.handler, key, body, s.sign(keyID))
}

// nothing checks that a refusal shows nothing of the call.
func nothing(t *testing.T, w *httptest.ResponseRecorder, code semel.Code) {
	t.Helper()
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), `"code":"`+string(code)+`"`) || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestARetryThatIsSignedAnew is one call, and gets the answer only if the route says that
// the signature is verified.
func TestARetryThatIsSignedAnew(t *testing.T) {
	for _, key := range []string{"order-77", unguessable} {
		s := newSigning(t, semelhttp.Route{})
		if w := s.send(key, "1", "AKID"); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		w := s.send(key, "1", "AKID")
		nothing(t, w, semel.CodeOtherCaller)
		if s.runs != 1 || s.decided[1].Decision != semel.OtherCaller {
			t.Errorf("%s: %d runs, decided %s", key, s.runs, s.decided[1].Decision)
		}
		link := strings.TrimSuffix(strings.TrimPrefix(w.Header().Get("Link"), "<"), `>; rel="status"`)
		r := httptest.NewRequest("GET", link, nil)
		s.sign("AKID")(r)
		status := httptest.NewRecorder()
		if s.status.ServeHTTP(status, r); link == "" {
			t.Error("no link to the status")
		}
		nothing(t, status, semel.CodeOtherCaller)

		named := newSigning(t, semelhttp.Route{Credential: []string{"authorization:Credential"}})
		named.send(key, "1", "AKID")
		if w := named.send(key, "1", "AKID"); w.Code != http.StatusOK || w.Header().Get("Idempotency-Replayed") != "true" || named.runs != 1 {
			t.Errorf("%s: named by the route: %d %s", key, w.Code, w.Body)
		}
	}
}

// TestAStrangerWithAnAccessKeysID gets nothing, whatever has happened to the call, and nothing
// that is finished runs for them.
func TestAStrangerWithAnAccessKeysID(t *testing.T) {
	for _, key := range []string{"order-77", unguessable} {
		for _, answer := range []int{http.StatusCreated, http.StatusUnprocessableEntity, http.StatusGatewayTimeout} {
			s := newSigning(t, semelhttp.Route{Forwards: true}) // a gateway's 504 proves nothing
			s.answer = answer
			s.send(key, "1", "AKID")
			for _, body := range []string{"1", "2"} {
				nothing(t, s.send(key, body, "AKID"), semel.CodeOtherCaller)
			}
			if s.runs != 1 {
				t.Errorf("%s: after %d it ran for a stranger", key, answer)
			}
		}
		// Another access key is another caller: told apart where the key can be guessed.
		s := newSigning(t, semelhttp.Route{})
		s.send(key, "1", "AKID")
		if w := s.send(key, "1", "AKIDOTHER"); (w.Code == http.StatusOK) != (key == "order-77") {
			t.Errorf("%s with another access key: %d %s", key, w.Code, w.Body)
		}
	}
}

// TestWhatMayRunAgainDoes: who signs anew is still the same caller, so a call that has failed,
// or that was refused before anything was done, is not lost.
func TestWhatMayRunAgainDoes(t *testing.T) {
	for _, key := range []string{"order-77", unguessable} {
		for _, answer := range []int{http.StatusUnauthorized, http.StatusInternalServerError} {
			s := newSigning(t, semelhttp.Route{})
			s.answer = answer
			s.send(key, "1", "AKID")
			s.answer = 0
			if w := s.send(key, "1", "AKID"); w.Code != http.StatusOK || w.Body.String() != "secret" || s.runs != 2 {
				t.Errorf("%s after %d: %d %s", key, answer, w.Code, w.Body)
			}
		}
	}
}

// TestWhileASignedCallRuns everybody is told so, and nobody whether the payload is the same.
func TestWhileASignedCallRuns(t *testing.T) {
	s := newSigning(t, semelhttp.Route{})
	s.during = func() {
		for _, body := range []string{"1", "2"} {
			nothing(t, s.send("order-77", body, "AKID"), semel.CodeInFlight)
		}
	}
	if s.send("order-77", "1", "AKID"); s.runs != 1 {
		t.Errorf("%d runs", s.runs)
	}
}
