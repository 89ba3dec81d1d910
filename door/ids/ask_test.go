package ids_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

// provider is a program with a path for each question. It notes what it gets.
type provider struct {
	*httptest.Server
	mu     sync.Mutex
	answer map[string]func(w http.ResponseWriter) // by path
	got    map[string][]asked
}

type asked struct {
	header http.Header
	body   map[string]any
}

func newProvider(t *testing.T, answer map[string]func(w http.ResponseWriter)) *provider {
	p := &provider{answer: answer, got: map[string][]asked{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var body map[string]any
		if err := json.Unmarshal(text, &body); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s of %s: %s", r.Method, r.URL, r.Header.Get("Content-Type"), text)
		}
		p.mu.Lock()
		p.got[r.URL.Path] = append(p.got[r.URL.Path], asked{r.Header, body})
		answer := p.answer[r.URL.Path]
		p.mu.Unlock()
		answer(w)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) asked(path string) []asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[path]
}

// saying answers with a status and a body.
func saying(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// service is a gateway whose commands need no function in Go, and its engine.
func (p *provider) service(t *testing.T, entries string) (*ids.Gateway, *semel.Engine) {
	t.Helper()
	registry, err := ids.Load([]byte("version: 1\ncommands:\n"+strings.ReplaceAll(entries, "URL", p.URL)), ids.LoadOptions{Bindings: &ids.Bindings{}})
	if err != nil {
		t.Fatal(err)
	}
	return on(t, memstore.New(), registry, nil)
}

var (
	alices = ids.Caller{Tenant: "acme", Principal: "alice"}
	toPay  = ids.Command{TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"}}
)

const payable = `
  - entity: card
    action: pay
    class: I3
    shields: [{strategy: S4, reconcile_url: 'URL/state', every: 1ms, compensation: card.repay, compensate_url: 'URL/undo'}]
    handler: {url: 'URL/pay'}
  - {entity: card, action: repay, handler: {url: 'URL/repay'}}
`

// A proof counts only if the URL says so: anything else refuses it, and nothing runs.
func TestStepUpAtAURL(t *testing.T) {
	clause.Proves(t, "IDS-XI.2", "IDS-X.1")
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		good   bool
	}{
		"yes":                 {saying(200, `{"outcome":"completed"}`), true},
		"no":                  {saying(200, `{"outcome":"rejected"}`), false},
		"a login page":        {saying(200, `<h1>Welcome</h1>`), false},
		"nothing":             {saying(204, ``), false},
		"an answer by status": {saying(201, `{"outcome":"completed"}`), false},
		"an error":            {saying(500, `{"outcome":"completed"}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, map[string]func(http.ResponseWriter){"/proof": c.answer, "/pay": saying(200, `{"summary":"Paid"}`)})
			g, _ := p.service(t, `  - {entity: card, action: pay, confirmation: {step_up_url: 'URL/proof'}, handler: {url: 'URL/pay'}}`)
			first, err := g.Execute(t.Context(), alices, toPay)
			if err != nil || first.Confirmation == nil || !first.Confirmation.StepUp {
				t.Fatalf("%+v, %v", first, err)
			}
			again := toPay
			again.CommandID, again.ConfirmationToken, again.StepUp = first.CommandID, first.Confirmation.Token, "123456"
			r, err := g.Execute(t.Context(), alices, again)
			if c.good && (err != nil || r.Summary != "Paid") || !c.good && !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRefused}) {
				t.Errorf("%+v, %v", r, err)
			}
			q := p.asked("/proof")
			if len(q) != 1 || q[0].body["question"] != "step_up" || q[0].body["step_up"] != "123456" || q[0].body["principal"] != "alice" || q[0].body["tenant_id"] != "acme" ||
				q[0].body["command"] != "card.pay" || q[0].body["command_id"] != first.CommandID {
				t.Errorf("asked %+v", q)
			}
			if paid := len(p.asked("/pay")); paid != map[bool]int{true: 1}[c.good] {
				t.Errorf("it ran %d times", paid)
			}
		})
	}
}

// A held command is settled by what its URL says of it, and by nothing else.
func TestReconcilingAtAURL(t *testing.T) {
	clause.Proves(t, "IDS-XI.2", "IDS-XI.S4")
	body := base64.StdEncoding.EncodeToString([]byte(`{"summary":"Paid after all","outcome":{"id":7}}`))
	refusal := base64.StdEncoding.EncodeToString([]byte(`{"code":"no_funds","summary":"The account is empty."}`))
	for name, c := range map[string]struct {
		answer  func(http.ResponseWriter)
		status  ids.Status
		reason  string
		words   string
		settled bool
	}{
		"it was done":           {saying(200, `{"outcome":"completed","body":"`+body+`"}`), ids.StatusExecuted, "", "Paid after all", true},
		"it was refused":        {saying(200, `{"outcome":"rejected","body":"`+refusal+`"}`), ids.StatusRejected, "no_funds", "The account is empty.", true},
		"refused, in words":     {saying(200, `{"outcome":"rejected","status":402,"message":"no money"}`), ids.StatusRejected, "status_402", "no money", true},
		"it failed":             {saying(200, `{"outcome":"failed","message":"the bank said no"}`), ids.StatusFailed, "failed", "the bank said no", true},
		"nobody knows":          {saying(200, `{"outcome":"unknown"}`), ids.StatusInProgress, ids.ReasonUnknownOutcome, "", false},
		"a page":                {saying(200, `<h1>ok</h1>`), ids.StatusInProgress, ids.ReasonUnknownOutcome, "", false},
		"no such address":       {saying(404, `{"outcome":"aborted"}`), ids.StatusInProgress, ids.ReasonUnknownOutcome, "", false},
		"an outcome twice":      {saying(200, `{"outcome":"unknown","outcome":"aborted"}`), ids.StatusInProgress, ids.ReasonUnknownOutcome, "", false},
		"an outcome unheard of": {saying(200, `{"outcome":"done"}`), ids.StatusInProgress, ids.ReasonUnknownOutcome, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, map[string]func(http.ResponseWriter){"/state": c.answer, "/pay": saying(504, ``)})
			g, e := p.service(t, payable)
			held, err := g.Execute(t.Context(), alices, toPay)
			if err != nil || held.Reason != ids.ReasonUnknownOutcome {
				t.Fatalf("%+v, %v", held, err)
			}
			sweepUntil(t, e, func() bool { return len(p.asked("/state")) > 0 })
			var r *ids.Response
			sweepUntil(t, e, func() bool {
				r, err = g.Status(t.Context(), alices, held.StatusID)
				return err != nil || !c.settled || r.Reason != ids.ReasonUnknownOutcome
			})
			words := ""
			if r != nil && c.settled {
				words = r.Summary + r.Detail
			}
			if err != nil || r.Status != c.status || r.Reason != c.reason || words != c.words {
				t.Errorf("%+v, %v", r, err)
			}
			q := p.asked("/state")[0].body
			if q["question"] != "reconcile" || q["command"] != "card.pay" || q["attempt"] != 1.0 || q["started_at"] == nil || q["effect_key"] == nil || q["principal"] != "alice" || q["command_id"] != held.CommandID {
				t.Errorf("asked %v", q)
			}
			if n := len(p.asked("/pay")); n != 1 {
				t.Errorf("it ran %d times", n)
			}
		})
	}
}

// sweepUntil sweeps until done.
func sweepUntil(t *testing.T, e *semel.Engine, done func() bool) {
	t.Helper()
	for !done() {
		if _, err := e.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

// A command is undone by a post to its URL, once and with a key.
func TestCompensationAtAURL(t *testing.T) {
	clause.Proves(t, "IDS-XI.2", "IDS-XI.S4")
	p := newProvider(t, map[string]func(http.ResponseWriter){"/pay": saying(200, `{"summary":"Paid","outcome":{"id":7}}`), "/undo": saying(200, `{"summary":"Repaid"}`)})
	g, _ := p.service(t, payable)
	paid, err := g.Execute(t.Context(), alices, toPay)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := g.Compensate(t.Context(), alices, paid.StatusID, "wrong card")
		if err != nil || r.Status != ids.StatusCompensated {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	q := p.asked("/undo")
	if len(q) != 1 || q[0].header.Get("Idempotency-Key") == "" {
		t.Fatalf("posted %+v", q)
	}
	b := q[0].body
	if b["question"] != "compensate" || b["command"] != "card.pay" || b["compensation"] != "card.repay" || b["reason"] != "wrong card" || b["command_id"] != paid.CommandID || b["outcome"].(map[string]any)["id"] != 7.0 {
		t.Errorf("posted %v", b)
	}
}

// What proves nothing about the undoing holds it: it isn't posted again.
func TestACompensationThatProvesNothingIsHeld(t *testing.T) {
	clause.Proves(t, "IDS-XI.2", "IDS-V.2")
	p := newProvider(t, map[string]func(http.ResponseWriter){"/pay": saying(200, `{}`), "/undo": saying(504, ``)})
	g, _ := p.service(t, payable)
	paid, err := g.Execute(t.Context(), alices, toPay)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := g.Compensate(t.Context(), alices, paid.StatusID, ""); err == nil {
			t.Errorf("%+v", r)
		}
	}
	if n := len(p.asked("/undo")); n != 1 {
		t.Errorf("it was posted %d times", n)
	}
}
