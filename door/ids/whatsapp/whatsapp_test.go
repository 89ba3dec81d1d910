package whatsapp

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

func batch(t *testing.T) []byte {
	t.Helper()
	body, err := os.ReadFile("testdata/batch.json")
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestHandshake(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name, mode, token, challenge string
		want                         int
	}{
		{"the owner's token", "subscribe", "the owner's token", "1158201444", http.StatusOK},
		{"another token", "subscribe", "the owner's tokeN", "1158201444", http.StatusForbidden},
		{"no token", "subscribe", "", "1158201444", http.StatusForbidden},
		{"another mode", "unsubscribe", "the owner's token", "1158201444", http.StatusForbidden},
		{"a challenge that is none", "subscribe", "the owner's token", strings.Repeat("x", 300), http.StatusForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := url.Values{"hub.mode": {c.mode}, "hub.verify_token": {c.token}, "hub.challenge": {c.challenge}}
			w := httptest.NewRecorder()
			r.in.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hook?"+q.Encode(), nil))
			if w.Code != c.want || (w.Body.String() == c.challenge) != (c.want == http.StatusOK) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	w := httptest.NewRecorder()
	r.in.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/hook", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d", w.Code)
	}
}

func TestSignature(t *testing.T) {
	body := deliveryOf(phone, text("wamid.1", alice, "refund A-1 5"))
	good := Sign(secret, body)
	long := deliveryOf(phone, text("wamid.1", alice, strings.Repeat("x", MaxBody)))
	for _, c := range []struct {
		name   string
		body   []byte
		header []string
		want   int
	}{
		{"none", body, nil, http.StatusUnauthorized},
		{"a changed body", bytes.Replace(body, []byte("A-1 5"), []byte("A-1 6"), 1), []string{good}, http.StatusForbidden},
		{"another secret", body, []string{Sign("another secret", body)}, http.StatusForbidden},
		{"a part of it", body, []string{good[:len(good)-2]}, http.StatusForbidden},
		{"empty", body, []string{""}, http.StatusUnauthorized},
		{"without its scheme", body, []string{strings.TrimPrefix(good, "sha256=")}, http.StatusForbidden},
		{"two of them", body, []string{good, good}, http.StatusForbidden},
		{"a body that is too long", long, []string{Sign(secret, long)}, http.StatusRequestEntityTooLarge},
		{"signed, and no webhook", []byte(`{"object":"page"}`), []string{Sign(secret, []byte(`{"object":"page"}`))}, http.StatusBadRequest},
		{"signed, and no JSON", []byte(`{`), []string{Sign(secret, []byte(`{`))}, http.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			header := http.Header{}
			for _, v := range c.header {
				header.Add(SignatureHeader, v)
			}
			if got := r.send(c.body, header); got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
			if r.stored() {
				t.Error("something of it was stored")
			}
		})
	}
	t.Run("two secrets during a rotation", func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.AppSecrets = []string{"the new secret", secret} })
		other := deliveryOf(phone, text("wamid.2", alice, "refund A-2 5"))
		if r.send(body, http.Header{SignatureHeader: {good}}) != http.StatusOK || r.send(other, http.Header{SignatureHeader: {Sign("the new secret", other)}}) != http.StatusOK {
			t.Error("one of them is refused")
		}
	})
}

func TestBatch(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-IX.1")
	r := newRig(t)
	if got := r.post(batch(t)); got != http.StatusOK {
		t.Fatalf("status %d", got)
	}
	t.Run("nothing runs before it is brought to work", func(t *testing.T) {
		if len(r.asked) > 0 {
			t.Errorf("asked: %v", r.asked)
		}
	})
	if errs := r.work(); len(errs) > 0 {
		t.Fatal(errs)
	}
	t.Run("news that share an id are told apart by their status", func(t *testing.T) {
		if !slices.Equal(r.news, []string{"delivered", "read", "sent"}) {
			t.Errorf("%v", r.news)
		}
	})
	t.Run("a batch that is partly new brings only that", func(t *testing.T) {
		for range 3 {
			if got := r.post(deliveryOf(phone, text("wamid.T1JfdHdv", alice, "again, with another batch around it"), text("wamid.bmV3", alice, "refund A-3 1"))); got != http.StatusOK {
				t.Fatalf("status %d", got)
			}
			if got := r.post(batch(t)); got != http.StatusOK {
				t.Fatalf("status %d", got)
			}
		}
		if errs := r.work(); len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, id := range []string{"wamid.T1Jfb25l", "wamid.T1JfdHdv", "wamid.bmV3"} {
			if r.asked[id] != 1 {
				t.Errorf("%s was mapped %d times", id, r.asked[id])
			}
		}
		for _, order := range []string{"A-1", "A-2", "A-3"} {
			if r.refunded(order) != 1 {
				t.Errorf("%s was refunded %d times", order, r.refunded(order))
			}
		}
		if len(r.news) != 3 {
			t.Errorf("news: %v", r.news)
		}
	})
}

func TestSameMessageAtOnce(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-IX.3")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.store.gate = make(chan struct{})
		var all sync.WaitGroup
		codes := make([]int, 30)
		for i := range codes {
			all.Go(func() { codes[i] = r.post(deliveryOf(phone, text("wamid.1", alice, "refund A-1 5"))) })
		}
		synctest.Wait() // one is taking it, and nobody is answered before that is durable
		if slices.Max(codes) != 0 {
			t.Errorf("answered too early: %v", codes)
		}
		close(r.store.gate)
		all.Wait()
		if slices.ContainsFunc(codes, func(c int) bool { return c != http.StatusOK }) {
			t.Errorf("answers: %v", codes)
		}
		if len(r.due) != 1 {
			t.Errorf("it was taken %d times", len(r.due))
		}
	})
	t.Run("it is not answered with 200 while it is not taken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.store.gate = make(chan struct{})
			body := deliveryOf(phone, text("wamid.1", alice, "refund A-1 5"))
			start := time.Now()
			if got := r.post(body); got != http.StatusServiceUnavailable || time.Since(start) != DefaultBudget {
				t.Errorf("status %d after %v", got, time.Since(start))
			}
			close(r.store.gate)
			synctest.Wait() // what has begun goes on
			if got := r.post(body); got != http.StatusOK {
				t.Errorf("afterwards: status %d", got)
			}
			if r.work(); r.refunded("A-1") != 1 {
				t.Errorf("refunded %d times", r.refunded("A-1"))
			}
		})
	})
}

func TestSameMessageOtherBody(t *testing.T) {
	clause.Proves(t, "IDS-XII.1", "IDS-XII.3")
	r := newRig(t)
	for _, body := range []string{"refund A-1 5", "refund A-1 5", "refund A-1 500"} {
		if got := r.post(deliveryOf(phone, text("wamid.1", alice, body))); got != http.StatusOK {
			t.Fatalf("status %d", got)
		}
	}
	if len(r.due) != 1 || r.seen[1].Decision != semel.Replay || r.seen[2].Decision != semel.Conflict || !errors.Is(r.seen[2].Err, semel.ErrConflict) {
		t.Errorf("%d taken, %+v", len(r.due), r.seen)
	}
	got := r.story(semel.ID{Tenant: "acme", Principal: Principal, Operation: MessageOperation, Key: phone + "/wamid.1"}, "")
	for _, want := range []string{"observation.emitted first_seen executed", "observation.emitted duplicate_replayed", "execution.rejected conflict_rejected"} {
		if !slices.Contains(got, want) {
			t.Errorf("the evidence has no %q: %q", want, got)
		}
	}
}

func TestOneBadMessage(t *testing.T) {
	r := newRig(t)
	body := deliveryOf(phone, text("wamid.1", alice, "refund A-1 5"), `{"from":"1"}`, `7`, `{"id":"wamid.2","type":"text","type":"text"}`,
		`{"id":"wamid.3","type":"text"}`, text("wamid.4", alice, strings.Repeat("x", MaxMessage)), text("wamid.5", alice, "refund A-5 5"))
	if got := r.post(body); got != http.StatusOK {
		t.Fatalf("status %d", got)
	}
	errs := r.work()
	var codes []string
	for _, err := range errs {
		refusal, ok := errors.AsType[*Refusal](err)
		if !ok {
			t.Fatal(err)
		}
		codes = append(codes, string(refusal.Code))
	}
	slices.Sort(codes)
	if !slices.Equal(codes, []string{"malformed", "malformed", "malformed", "malformed", "too_long"}) {
		t.Errorf("parked: %v", codes)
	}
	if r.refunded("A-1") != 1 || r.refunded("A-5") != 1 {
		t.Error("the good ones were lost")
	}
	if r.post(body) != http.StatusOK || len(r.due) > 0 {
		t.Error("they were taken again")
	}
}

func TestNotTaken(t *testing.T) {
	t.Run("a number that is nobody's", func(t *testing.T) {
		r := newRig(t)
		both := append([]byte(nil), batch(t)...)
		both = bytes.Replace(both, []byte(`"phone_number_id": "770001"`), []byte(`"phone_number_id": "770002"`), 1)
		if got := r.post(both); got != http.StatusServiceUnavailable {
			t.Errorf("status %d", got)
		}
		if r.work(); len(r.news) != 3 {
			t.Error("what is known was not taken")
		}
	})
	t.Run("a value that is none is nobody's", func(t *testing.T) {
		r := newRig(t)
		body := []byte(`{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{"messages":"x"}}]}]}`)
		if got := r.post(body); got != http.StatusServiceUnavailable {
			t.Errorf("status %d", got)
		}
	})
	t.Run("names in another case are others", func(t *testing.T) {
		r := newRig(t)
		body := deliveryOf(phone, text("wamid.case", alice, "refund A-1 5"))
		if got := r.post([]byte(strings.Replace(string(body), `"messages":[`, `"Messages":[`, 1))); got != http.StatusOK {
			t.Errorf("status %d", got)
		}
		if r.work(); len(r.asked) != 0 {
			t.Errorf("asked: %v", r.asked)
		}
	})
	t.Run("more parts than one delivery has", func(t *testing.T) {
		for n, want := range map[int]int{maxParts: http.StatusOK, maxParts + 1: http.StatusRequestEntityTooLarge} {
			var texts []string
			for i := range n {
				texts = append(texts, text(fmt.Sprintf("wamid.%d", i), alice, "x"))
			}
			if got := newRig(t).post(deliveryOf(phone, texts...)); got != want {
				t.Errorf("%d messages: status %d, want %d", n, got, want)
			}
		}
		const head = `{"object":"whatsapp_business_account","entry":[`
		for body, want := range map[string]int{
			head + strings.Repeat("{},", maxVisited) + "{}]}": http.StatusRequestEntityTooLarge, head + "1]}": http.StatusBadRequest, head + `{"changes":1}]}`: http.StatusBadRequest,
		} {
			if got := newRig(t).post([]byte(body)); got != want {
				t.Errorf("%.80s: status %d, want %d", body, got, want)
			}
		}
	})
	t.Run("a store that is away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.store.set(true)
			body := deliveryOf(phone, text("wamid.1", alice, "refund A-1 5"))
			if got := r.post(body); got != http.StatusServiceUnavailable {
				t.Errorf("status %d", got)
			}
			r.store.set(false)
			<-time.After(time.Minute) // of virtual time: the first delivery goes on in the background until the engine gives up
			if got := r.post(body); got != http.StatusOK {
				t.Errorf("afterwards: status %d", got)
			}
			synctest.Wait()
			if r.work(); r.refunded("A-1") != 1 {
				t.Errorf("refunded %d times", r.refunded("A-1"))
			}
		})
	})
}

func TestOptions(t *testing.T) {
	if _, err := New(nil, Options{}); err == nil || strings.Count(err.Error(), "\n") < 5 {
		t.Errorf("not every problem is reported: %v", err)
	}
}
