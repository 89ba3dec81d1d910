package check_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/check"
	forrstkit "github.com/semelhq/semel/internal/check/forrst"
	webhookkit "github.com/semelhq/semel/internal/check/webhook"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store/memstore"
)

// newEngine is an engine in memory.
func newEngine(t *testing.T) *semel.Engine {
	t.Helper()
	store := memstore.New()
	engine, err := semel.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(engine.Close(context.Background()), store.Close()) })
	return engine
}

// functions are those of the kit of Forrst, behind Semel.
func functions(t *testing.T, provider string) http.Handler {
	t.Helper()
	up, err := forrst.NewUpstream(forrst.UpstreamOptions{URL: provider})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	s, err := forrst.New(newEngine(t), forrst.Options{Functions: []forrst.Function{
		{Name: "payments.charge", Versions: []forrst.Version{{Version: "1.0.0", Run: up.Run}, {Version: "2.0.0", Run: up.Run}}},
		{Name: "payments.refund", Versions: []forrst.Version{{Version: "1.0.0", Run: up.Run}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

const secretOfStripe = "whsec_0123456789abcdef0123456789abcdef"

// receiver is Semel's, for the webhooks of Stripe.
func receiver(t *testing.T, provider string) http.Handler {
	t.Helper()
	source, err := webhook.Builtin("stripe")
	if err != nil {
		t.Fatal(err)
	}
	r, err := webhook.New(newEngine(t), webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{secretOfStripe}}, Mode: webhook.Sync,
		Handle: func(_ context.Context, e *webhook.Event) error { return effect(provider, e.Body) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// effect has one on what a body is about.
func effect(provider string, body []byte) error {
	resp, err := http.Post(provider, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return semel.Aborted(errors.New(resp.Status))
	}
	return nil
}

// tampered is an implementation with a fault in front of it.
type tampered struct {
	good     http.Handler
	provider string
	fault    kitFault
	now      moment

	mu      sync.Mutex
	taken   map[string]int           // by the names in bodies
	refused map[string]bool          // too
	running map[string]int           // too
	second  map[string]chan struct{} // closed when there is one while the first waits for it
	met     map[string]bool          // there were two at once
}

// delivery is what a fault looks at.
type delivery struct {
	body    string
	group   string
	running int  // deliveries of the same name that are, with this one
	before  int  // deliveries of the same name that got 2xx
	status  int  // of the good answer
	left    bool // its client has
}

// kitFault makes a bad implementation of a good one, whose groups must find it, and no others.
type kitFault struct {
	groups string
	again  func(d delivery) bool // has an effect of its own
	ask    [2]string             // replaced in requests
	say    [2]string             // replaced in answers
	about  []string              // if request and answer have these texts
	take   int                   // takes with 200 what is refused with this status
	forget bool                  // takes for handled what was refused before
	breaks int                   // breaks answers with this status off
}

var nameIn = regexp.MustCompile(`t-[A-Z2-7]{26}`)

func (p *tampered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.fault
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	name := nameIn.FindString(string(body))
	d, forgotten := p.arrives(name, string(body))
	if forgotten {
		return
	}
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(replaced(d.body, f.ask))), -1
	answer := httptest.NewRecorder()
	p.good.ServeHTTP(answer, r)
	p.mu.Lock()
	left := p.met[name] && d.group == "gone" && d.before == 0 && d.running == 1
	if p.mu.Unlock(); left {
		<-r.Context().Done() // the second comes when the sender of the first has left
	}
	d.status, d.left = answer.Code, r.Context().Err() != nil
	if f.again != nil && f.again(d) {
		_ = effect(p.provider, body) // which answers as it likes
	}
	p.mu.Lock()
	if p.running[name]--; d.status/100 != 2 {
		p.refused[name] = true
	} else {
		p.taken[name]++
	}
	p.mu.Unlock()
	if d.status == f.take {
		d.status = http.StatusOK
	}
	text := answer.Body.String()
	if !slices.ContainsFunc(f.about, func(about string) bool { return !strings.Contains(d.body+text, about) }) {
		text = replaced(text, f.say)
	}
	if d.status == f.breaks {
		w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	}
	w.WriteHeader(d.status)
	_, _ = io.WriteString(w, text)
}

// arrives takes note of a delivery. The first of those at once waits for the second.
func (p *tampered) arrives(name, body string) (d delivery, forgotten bool) {
	first := p.now.first("concurrent", "")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[name]++
	d = delivery{body: body, group: p.now.is(), before: p.taken[name], running: p.running[name]}
	if forgotten = p.fault.forget && p.refused[name]; forgotten {
		p.running[name]--
		return d, true
	}
	p.met[name] = d.running > 1
	switch second := p.second[name]; {
	case first:
		second = make(chan struct{})
		p.second[name] = second
		p.mu.Unlock()
		<-second
		p.mu.Lock()
	case second != nil:
		close(second)
		delete(p.second, name)
	}
	return d, false
}

func replaced(text string, by [2]string) string {
	if by[0] == "" {
		return text
	}
	return strings.ReplaceAll(text, by[0], by[1])
}

// red runs a kit on an implementation with a fault.
func red(t *testing.T, kit *check.Kit, implement func(t *testing.T, provider string) http.Handler, f kitFault) (groups []string, report *check.Report) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	provider := "http://" + l.Addr().String()
	bad := &tampered{good: implement(t, provider), provider: provider, fault: f,
		taken: map[string]int{}, refused: map[string]bool{}, running: map[string]int{}, second: map[string]chan struct{}{}, met: map[string]bool{}}
	srv := httptest.NewServer(bad)
	defer srv.Close()
	report, err = kit.Run(t.Context(), check.Options{URL: srv.URL, Listener: l, Began: bad.now.began, Patience: 5 * time.Second, Flags: map[string]*string{
		"source": new("stripe"), "secret": new(secretOfStripe), "delivery": new(""),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Verdicts {
		if v.Outcome == check.Broken {
			t.Logf("%s: %.300s", v.ID, v.Saw)
			if len(v.Transcript) == 0 || len(v.Reproduce) == 0 || len(v.Reproduce) > 10 || v.Saw == "" || v.Rests == "" {
				t.Errorf("%s has no transcript, no lines to reproduce it, or nothing that it rests on: %+v", v.ID, v)
			}
			if !slices.Contains(groups, v.Group) {
				groups = append(groups, v.Group)
			}
		}
	}
	return groups, report
}

// has makes a fault of requests with a text.
func has(text string) func(delivery) bool {
	return func(d delivery) bool { return strings.Contains(d.body, text) }
}

func isDuplicate(d delivery) bool    { return d.before > 0 && d.status == http.StatusOK }
func isAtOnce(d delivery) bool       { return d.running > 1 && d.group == "concurrent" }
func isChanged(d delivery) bool      { return d.status == http.StatusOK && has(`"changed"`)(d) }
func isAbandoned(d delivery) bool    { return d.left && d.before == 0 }
func isWhileRunning(d delivery) bool { return d.running == 2 }

var forrstFaults = map[string]kitFault{
	"none":                              {},
	"a first answer says cached":        {groups: "first scope", say: [2]string{`"processed"`, `"cached"`}},
	"a key isn't required":              {groups: "first", again: has(`"options": {  }`)},
	"each duplicate is processed":       {groups: "duplicates", again: isDuplicate},
	"a duplicate gets another result":   {groups: "duplicates", say: [2]string{`"succeeded"`, `"pending"`}, about: []string{`"cached"`}},
	"a duplicate isn't told since when": {groups: "duplicates", say: [2]string{`"cached_at"`, `"since"`}},
	"the version isn't in the key":      {groups: "scope", ask: [2]string{`"2.0.0"`, `"1.0.0"`}},
	"the function isn't in the key":     {groups: "scope", ask: [2]string{"payments.refund", "payments.charge"}},
	"requests at once are processed":    {groups: "concurrent", again: isAtOnce},
	"one more at a time is processed":   {groups: "concurrent processing", again: isWhileRunning},
	"nobody is told when to retry":      {groups: "processing", say: [2]string{`"retry_after"`, `"later"`}},
	"a conflict isn't called so":        {groups: "conflict", say: [2]string{"IDEMPOTENCY_CONFLICT", "CONFLICT"}},
	"other arguments are processed":     {groups: "conflict", again: has(`"amount": 999`)},
	"a duplicate's ttl counts":          {groups: "ttl", say: [2]string{`"expires_at":"2`, `"expires_at":"3`}, about: []string{`"cached"`, `"hour"`}},
	"an error isn't cached":             {groups: "errors", again: has("INVALID_ARGUMENTS")},
	"an unknown outcome runs again":     {groups: "errors", again: has("BROKEN")},
}

var webhookFaults = map[string]kitFault{
	"none":                               {},
	"a wrong signature is taken":         {groups: "signature", take: http.StatusUnauthorized},
	"a refusal breaks off":               {groups: "signature", breaks: http.StatusUnauthorized},
	"a refused delivery uses its id up":  {groups: "signature failures", forget: true},
	"each delivery is handled":           {groups: "duplicates", again: isDuplicate},
	"deliveries at once are handled":     {groups: "concurrent", again: isAtOnce},
	"other content is handled":           {groups: "conflict", again: isChanged},
	"a failure is told to be none":       {groups: "failures", take: http.StatusServiceUnavailable},
	"whoever leaves has it handled anew": {groups: "gone", again: isAbandoned},
}

// TestEachFaultIsRedInItsGroup: a kit whose group is red for another's fault sends people to the
// wrong place.
func TestEachFaultIsRedInItsGroup(t *testing.T) {
	for name, kit := range map[string]struct {
		kit       *check.Kit
		implement func(t *testing.T, provider string) http.Handler
		faults    map[string]kitFault
	}{
		"forrst": {&forrstkit.Kit, functions, forrstFaults}, "webhook": {&webhookkit.Kit, receiver, webhookFaults},
	} {
		for fault, f := range kit.faults {
			t.Run(name+"/"+fault, func(t *testing.T) {
				if fault != "none" && fault != "other arguments are processed" && fault != "other content is handled" {
					thorough.Only(t, "one more fault that is planted")
				}
				t.Parallel()
				groups, report := red(t, kit.kit, kit.implement, f)
				if !slices.Equal(slices.Sorted(slices.Values(groups)), slices.Sorted(slices.Values(strings.Fields(f.groups)))) {
					t.Errorf("red are %q, want only %s", groups, f.groups)
				}
				for _, v := range report.Verdicts {
					if f.groups == "" && v.Outcome != check.Kept {
						t.Errorf("%s is %s: %s", v.ID, v.Outcome, v.Saw)
					}
				}
			})
		}
	}
}
