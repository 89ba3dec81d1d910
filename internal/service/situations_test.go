package service_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// situation plays one picture of docs/situations.md.
type situation struct {
	t       *testing.T
	s       *running
	charges atomic.Int32
	dies    atomic.Bool // instead of an answer
	meets   chan struct{}
	goes    chan struct{}
}

var codeOf = regexp.MustCompile(`"code":"(\w+)"`)

// charge sends a request, and notes its answer.
func (x *situation) charge(amount int) string {
	status, header, text := do(x.t, "POST", x.s.data("/charges"), fmt.Sprintf(`{"amount":%d}`, amount), "Idempotency-Key", "order-7", "Content-Type", "application/json")
	said := fmt.Sprint(status, " ", strings.TrimSpace(text))
	if m := codeOf.FindStringSubmatch(text); m != nil {
		said = fmt.Sprint(status, " ", m[1])
	}
	if header.Get("Retry-After") != "" && status == http.StatusConflict && strings.Contains(said, "in_flight") {
		said += ", Retry-After"
	}
	if header.Get("Idempotency-Replayed") == "true" {
		said += ", replayed"
	}
	return said
}

func (x *situation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if x.meets != nil {
		x.meets <- struct{}{}
		<-x.goes
	}
	if x.dies.Load() {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "charge ", x.charges.Add(1))
}

// settle says what became of the call.
func (x *situation) settle(body string) {
	_, _, text := do(x.t, "GET", x.s.admin("/v1/records?q=state:held"), "")
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(text)
	if id == nil {
		x.t.Fatal("nothing is held: ", text)
	}
	if status, _, text := do(x.t, "POST", x.s.admin("/v1/records/"+id[1]+"/settle"), body); status != http.StatusOK {
		x.t.Fatal(status, text)
	}
}

// begin begins a call as a worker does, with what tells when it was first sent.
func (x *situation) begin(key, more string) (said, execution string) {
	status, _, text := do(x.t, "POST", x.s.data("/v1/operations/jobs/executions"), `{"key":"`+key+`"`+more+`}`)
	if m := codeOf.FindStringSubmatch(text); m != nil {
		return fmt.Sprint(status, " ", m[1]), ""
	}
	return fmt.Sprint(status, " ", regexp.MustCompile(`"decision":"(\w+)"`).FindStringSubmatch(text)[1]), regexp.MustCompile(`"execution":"([^"]+)"`).FindStringSubmatch(text)[1]
}

// plays are what the readers of the pictures see, by their names.
var plays = map[string]func(x *situation) []string{
	"in-flight": func(x *situation) []string {
		x.meets, x.goes = make(chan struct{}), make(chan struct{})
		first := make(chan string)
		go func() { first <- x.charge(12) }()
		<-x.meets
		second := x.charge(12)
		close(x.goes)
		return []string{second, <-first, x.charge(12)}
	},
	"other-payload": func(x *situation) []string { return []string{x.charge(12), x.charge(99)} },
	"crash-before": func(x *situation) []string {
		x.dies.Store(true)
		answers := []string{x.charge(12), x.charge(12)}
		x.dies.Store(false)
		x.settle(`{"outcome":"aborted","reason":"nothing was done"}`)
		return append(answers, x.charge(12))
	},
	"crash-after": func(x *situation) []string {
		x.dies.Store(true)
		answers := []string{x.charge(12), x.charge(12)}
		x.settle(`{"outcome":"completed","reason":"charge 1 was made","status":201,"body":"charge 1"}`)
		return append(answers, x.charge(12))
	},
	"answer-lost": func(x *situation) []string {
		x.charge(12) // and nobody hears the answer
		return []string{x.charge(12)}
	},
	"late": func(x *situation) []string {
		began, execution := x.begin("order-7", "")
		status, _, text := do(x.t, "POST", x.s.data("/v1/executions/"+execution+"/complete"), `{"result":"charge 1"}`)
		m := regexp.MustCompile(`"status":"(\w+)"`).FindStringSubmatch(text)
		if m == nil {
			x.t.Fatal(began, status, text)
		}
		ended := fmt.Sprint(status, " ", m[1])
		// A store that has forgotten a call looks like one that never had it.
		late, _ := x.begin("order-6", `,"first_sent":"`+time.Now().Add(-8*24*time.Hour).UTC().Format(time.RFC3339)+`"`)
		return []string{began, ended, late}
	},
}

// TestSituations plays each picture of docs/situations.md against a service. The answers are those
// that the picture has.
func TestSituations(t *testing.T) {
	for name, play := range plays {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("../rig/diagrams/texts/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			x := &situation{t: t}
			up := httptest.NewServer(x)
			defer up.Close()
			x.s = start(t, write(t, "store: {url: 'memory:'}\noperations: [{name: charge}, {name: jobs, window: 7d, refuse_late: true}]\nroutes: [{match: POST /charges, upstream: '"+up.URL+"', operation: charge}]\n"))
			var want []string
			for _, m := range regexp.MustCompile(`(?m)^Semel --> (?:Client|Worker): (.*)$`).FindAllStringSubmatch(string(text), -1) {
				want = append(want, m[1])
			}
			if got := play(x); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("the answers are\n%s\nand the picture has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
