package service_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/rig/clause"
)

// rows has statuses of each row of the table of docs/what-a-5xx-means.md, and what they prove
// at most doors. The table itself is tested in package judge, status by status.
var rows = map[judge.Verdict][]int{
	judge.Completed: {200, 201, 202, 204, 226, 299, 302, 303, 304, 399},
	judge.Aborted:   {307, 308, 401, 402, 407, 411, 412, 415, 417, 421, 423, 425, 426, 428, 429, 431, 511},
	judge.Rejected:  {400, 403, 404, 405, 409, 410, 413, 422, 451},
	judge.Failed:    {500, 501, 505, 508, 510},
	judge.Unknown:   {408, 419, 424, 460, 499, 502, 503, 504, 509, 520, 530, 598, 599, 600, 999},
}

// at is what a status of a row proves of an entrance, before its door's own rules.
func (d *entrance) at(status int, v judge.Verdict) judge.Verdict {
	switch {
	case d.money && status == 402:
		v = judge.Rejected
	case d.money && status == 403:
		v = judge.Unknown
	case d.own && !d.money && status >= 502 && status <= 504:
		v = judge.Failed
	}
	return d.verdict(status, v)
}

// done reports whether a sender is told that the work was done. 202 is what commands answer
// while that isn't known.
func done(status int) bool { return status < 400 && status != http.StatusAccepted }

// TestEveryAnswerAtEveryDoor: statuses of every row, with what else can be said, and every way
// to break off, at every door: what a duplicate gets, and how often the program was asked. A
// status from 100 to 199 is no answer: it is one of the ways to break off.
func TestEveryAnswerAtEveryDoor(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-V.2", "IDS-IX.1", "IDS-IX.5", "MAP-FLOW.4", "MAP-FLOW.6")
	t.Parallel()
	p := &program{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	type answer struct {
		name    string
		status  int
		says    http.HandlerFunc
		verdict judge.Verdict
		broken  bool // it isn't an answer
		headed  bool // but its head is one that says that the work was done
		said    bool // by a header of Semel's
	}
	var answers []answer
	for v, statuses := range rows {
		for _, status := range statuses {
			answers = append(answers,
				answer{name: fmt.Sprint(status), status: status, says: saying(status), verdict: v},
				answer{name: fmt.Sprintf("%d with Retry-After", status), status: status, says: saying(status, "Retry-After", "1"), verdict: v})
		}
	}
	for _, status := range []int{200, 303, 404, 408, 429, 500, 502, 503, 504, 522} {
		for word, v := range map[string]judge.Verdict{"none": judge.Aborted, " None ": judge.Aborted, "unknown": judge.Unknown, "something": judge.Unknown, "": judge.Unknown} {
			answers = append(answers, answer{name: fmt.Sprintf("%d with Semel-Effect %q", status, word), status: status, says: saying(status, "Semel-Effect", word), verdict: v, said: true})
		}
	}
	answers = append(answers,
		answer{name: "a reset", says: raw(""), broken: true},
		answer{name: "half a head", says: raw("HTTP/1.1 200 OK\r\nContent-Ty"), broken: true},
		answer{name: "half a body", says: raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), broken: true, headed: true},
		answer{name: "half a chunk", says: raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf"), broken: true, headed: true},
		answer{name: "half the body of a failure", says: raw("HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nhalf"), broken: true},
		answer{name: "something else", says: raw("220 mail ESMTP\r\n"), broken: true},
		answer{name: "100 at last", says: raw("HTTP/1.1 100 Continue\r\n\r\n"), broken: true},
		answer{name: "199 at last", says: raw("HTTP/1.1 199 Wait\r\n\r\n"), broken: true},
	)
	for _, d := range doorsTo(t, up.URL, p, time.Minute) {
		t.Run(d.name, func(t *testing.T) {
			for i, a := range answers {
				if a.broken && (d.own || a.headed && d.statusOnly) {
					continue // a handler doesn't break off
				}
				want := a.verdict
				if !a.said && !a.broken {
					want = d.at(a.status, want)
				}
				call := fmt.Sprintf("call-%d", i)
				p.says(a.says)
				p.hits.Store(0)
				first, header := d.deliver(t, call)
				// A refusal of Semel's own says by it whether the call may have been executed.
				own := want == judge.Unknown && header.Get("Semel-Effect") == "unknown" || d.words && want == judge.Aborted && header.Get("Semel-Effect") == "none"
				if said := header.Get("Semel-Effect"); said != "" && !own {
					t.Errorf("%s: Semel-Effect %q is passed on", a.name, said)
				}
				if d.name == "a message" {
					if judge.Verdict(first) != want {
						t.Errorf("%s is %s, want %s", a.name, judge.Verdict(first), want)
					}
					continue
				}
				if want == judge.Unknown && done(first) {
					t.Errorf("%s: the first sender got %d, as if it were done", a.name, first)
				}
				p.says(saying(200))
				second, _ := d.deliver(t, call)
				hits := int64(1)
				if d.runs(want) {
					hits = 2
				}
				if got := p.hits.Load(); got != hits {
					t.Errorf("%s: the program was asked %d times, want %d: it is %s; the duplicate got %d", a.name, got, hits, want, second)
				}
				if want == judge.Unknown && done(second) {
					t.Errorf("%s: a duplicate got %d, as if it were done", a.name, second)
				}
				replays := want == judge.Completed || want == judge.Rejected || want == judge.Failed
				if hits == 1 && replays && second != first {
					t.Errorf("%s: a duplicate got %d, and the first %d", a.name, second, first)
				}
			}
		})
	}
}

// TestAnswersByName: what somebody who knows the way to the program has said of its answers
// counts at every door, before its table.
func TestAnswersByName(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	t.Parallel()
	p := &program{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	body := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}
	}
	doors := doorsWith(t, up.URL, p, time.Minute, judge.Answers{
		NotExecuted: []string{"302 header:Location=/sign-in*", "200 json:/errors/0/code=THROTTLED", "504"}, Unknown: []string{"404", "200 json:/ok=false"}, Final: []string{"599"},
	}, "")
	for _, d := range doors {
		if d.name == "a message" || d.name == "an effect at a provider" || d.name == "a route that names statuses" || d.name == "a payment of commerce" {
			continue // they have no such setting, or another
		}
		t.Run(d.name, func(t *testing.T) {
			for i, a := range []struct {
				name    string
				says    http.HandlerFunc
				verdict judge.Verdict
			}{
				{"a login", saying(302, "Location", "/sign-in?next=/"), judge.Aborted},
				{"throttled", body(200, `{"errors":[{"code":"THROTTLED"}]}`), judge.Aborted},
				{"a status that proves nothing was done", saying(504), judge.Aborted},
				{"a status that proves nothing", saying(404), judge.Unknown},
				{"a body that proves nothing", body(200, `{"ok":false}`), judge.Unknown},
				{"a status that is final", saying(599), judge.Rejected},
				{"its own word comes first", saying(599, "Semel-Effect", "none"), judge.Aborted},
			} {
				call := fmt.Sprintf("call-%d", i)
				p.says(a.says)
				p.hits.Store(0)
				first, _ := d.deliver(t, call)
				p.says(saying(200))
				second, _ := d.deliver(t, call)
				hits := int64(1)
				if d.runs(a.verdict) {
					hits = 2
				}
				if got := p.hits.Load(); got != hits {
					t.Errorf("%s: the program was asked %d times, want %d: %d, then %d", a.name, got, hits, first, second)
				}
				if a.verdict == judge.Unknown && (done(first) || done(second)) {
					t.Errorf("%s: %d, then %d, as if it were done", a.name, first, second)
				}
			}
		})
	}
}

// TestSilenceAtEveryDoor: a program that never answers may have done the work.
func TestSilenceAtEveryDoor(t *testing.T) {
	clause.Proves(t, "IDS-V.2", "IDS-IX.1")
	t.Parallel()
	p := &program{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	for _, d := range doorsTo(t, up.URL, p, 300*time.Millisecond) {
		if d.own || d.name == "a message" {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			p.says(silence)
			p.hits.Store(0)
			if status, _ := d.deliver(t, "k"); done(status) {
				t.Errorf("the first sender got %d", status)
			}
			p.says(saying(200))
			if status, _ := d.deliver(t, "k"); done(status) || p.hits.Load() != 1 {
				t.Errorf("the duplicate got %d, and the program was asked %d times", status, p.hits.Load())
			}
		})
	}
}

// TestRetriedByName: with on_abandoned: retry, an answer that proves nothing lets the next
// delivery run, whatever the door, unless the operation declares its effects.
func TestRetriedByName(t *testing.T) {
	clause.Proves(t, "IDS-XI.S1", "MAP-FLOW.4")
	t.Parallel()
	p := &program{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	for _, d := range doorsWith(t, up.URL, p, 5*time.Second, judge.Answers{}, ", on_abandoned: retry") {
		if d.own || d.name == "a message" {
			continue
		}
		held := map[string]bool{
			"a financial route with an effect header": true, "the proxy with a ledger": true, "an effect at a provider": true, "a payment of commerce": true, // their ledgers have the effect
		}[d.name]
		for name, says := range map[string]http.HandlerFunc{"timeout": saying(504), "reset": raw("")} {
			t.Run(d.name+", "+name, func(t *testing.T) {
				var keys []string
				tell := func(h http.HandlerFunc) {
					p.says(func(w http.ResponseWriter, r *http.Request) {
						keys = append(keys, r.Header.Get("X-Charge"))
						h(w, r)
					})
				}
				tell(says)
				p.hits.Store(0)
				if status, _ := d.deliver(t, name); done(status) {
					t.Errorf("the first sender got %d", status)
				}
				tell(saying(200))
				d.deliver(t, name)
				hits := int64(2)
				if held {
					hits = 1
				}
				if got := p.hits.Load(); got != hits {
					t.Fatalf("the program was asked %d times, want %d", got, hits)
				}
				if d.name == "a command with a provider's key" && (keys[0] == "" || keys[0] != keys[1]) {
					t.Errorf("the provider got the keys %q", keys)
				}
			})
		}
	}
}

// TestNobodyListensAtEveryDoor: where nothing was sent, nothing was done.
func TestNobodyListensAtEveryDoor(t *testing.T) {
	clause.Proves(t, "MAP-FLOW.6")
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := &program{}
	p.says(saying(200))
	doors := doorsTo(t, "http://"+address, p, time.Minute)
	for _, d := range doors {
		if !d.own {
			if status, _ := d.deliver(t, "k"); d.name == "a message" && judge.Verdict(status) != judge.Aborted || d.name != "a message" && done(status) {
				t.Errorf("%s: got %d", d.name, status)
			}
		}
	}
	listenAgain(t, address, p)
	for _, d := range doors {
		if d.own || d.name == "a function of Forrst" { // for which the program speaks another language
			continue
		}
		p.hits.Store(0)
		if d.deliver(t, "k"); p.hits.Load() != 1 {
			t.Errorf("%s: asked %d times after it was back", d.name, p.hits.Load())
		}
	}
}

// TestAGatewayThatGivesUp stands between every door and a slow program. It answers by
// itself while the program is at work: one call has one effect, however often it comes.
func TestAGatewayThatGivesUp(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-V.2", "IDS-IX.1", "FOR-FAIL.1")
	t.Parallel()
	var effects atomic.Int64
	began, gaveUp, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	slow := func() { // which nobody can call back
		began <- struct{}{}
		<-gaveUp
		effects.Add(1)
		ended <- struct{}{}
	}
	p := &program{}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	for _, d := range doorsTo(t, up.URL, p, time.Minute) {
		if d.own || d.name == "a message" || d.name == "a route that names statuses" {
			continue // nobody is in between, its receiver knows it by its id, or somebody promised
		}
		statuses := []int{408, 424, 499, 502, 503, 504, 524, 599}
		if d.money {
			statuses = append(statuses, 403)
		}
		for _, status := range statuses {
			t.Run(fmt.Sprintf("%s, %d", d.name, status), func(t *testing.T) {
				p.says(func(w http.ResponseWriter, _ *http.Request) {
					go slow()
					<-began
					w.Header().Set("Retry-After", "5") // as Varnish says it of a timeout
					w.WriteHeader(status)
				})
				effects.Store(0)
				call := fmt.Sprintf("order-%d", status)
				d.deliver(t, call)
				gaveUp <- struct{}{}
				<-ended
				p.says(func(w http.ResponseWriter, _ *http.Request) {
					effects.Add(1)
					w.WriteHeader(http.StatusOK)
				})
				for range 2 {
					if got, _ := d.deliver(t, call); done(got) {
						t.Errorf("a duplicate got %d", got)
					}
				}
				if n := effects.Load(); n != 1 {
					t.Errorf("%d effects", n)
				}
			})
		}
	}
}
