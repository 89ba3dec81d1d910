//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
)

// upstream is a service that ignores keys: it executes every request, and logs that.
type upstream struct {
	note func(history.Event)
	work func(*rand.Rand) time.Duration // how long a request takes
	// earlier: nodes run an earlier program.
	earlier atomic.Bool

	mu  sync.Mutex
	rng *rand.Rand
}

func newUpstream(seed uint64, note func(history.Event)) *upstream {
	return &upstream{note: note, work: work, rng: rand.New(rand.NewPCG(seed, 3))}
}

// plan says how the upstream handles a request.
type plan struct {
	status  int
	takes   time.Duration
	receipt uint64
}

func (u *upstream) plan() plan {
	u.mu.Lock()
	defer u.mu.Unlock()
	return plan{
		status: pick(u.rng,
			choice[int]{90, http.StatusCreated}, choice[int]{4, http.StatusUnprocessableEntity}, choice[int]{6, http.StatusInternalServerError}),
		takes: u.work(u.rng), receipt: u.rng.Uint64(),
	}
}

// ServeHTTP takes an order.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var order struct {
		Order  string `json:"order"`
		Amount int    `json:"amount"`
	}
	data, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(data, &order) != nil {
		return // an incomplete request isn't executed
	}
	p := u.plan()
	op := strings.TrimPrefix(r.URL.Path, "/")
	e := history.Event{
		At: now(), Kind: history.Arrival, Key: op + "/" + order.Order, ID: r.Header.Get(idHeader), Payload: order.Amount,
	}
	body := fmt.Sprintf(`{"order":%q,"amount":%d,"receipt":"%016x"}`, order.Order, order.Amount, p.receipt)
	if p.status == http.StatusUnprocessableEntity && !mayRefuse(op, u.earlier.Load()) {
		p.status = http.StatusCreated
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	if caller := r.Header.Get("Authorization"); rules[op].Shared && caller != credential(order.Order, "") {
		e.Caller, _ = strings.CutSuffix(strings.TrimPrefix(caller, "Bearer "), " made up")
		p.status, p.takes = http.StatusUnauthorized+2*int(p.receipt%2), min(p.takes, lease/6) // or 403
	}
	switch p.status {
	case http.StatusCreated:
		header.Set("Location", "/receipts/"+order.Order)
	case http.StatusUnprocessableEntity, http.StatusUnauthorized, http.StatusForbidden:
		body = fmt.Sprintf(`{"order":%q,"refused":"%016x"}`, order.Order, p.receipt)
		e.Outcome = upstreamOutcome(p.status, header, []byte(body))
	default:
		e.Word = history.Failed
	}
	u.note(e)
	time.Sleep(p.takes) // the client may hang up meanwhile, which changes nothing
	if p.status == http.StatusCreated {
		e.At, e.Kind, e.Outcome = now(), history.Effect, upstreamOutcome(p.status, header, []byte(body))
		u.note(e)
	}
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, body)
}

// idHeader carries the id of a request through the proxy to the upstream.
const idHeader = "Chaos-Id"

// numberHeader carries the number of a call in its sequence.
const numberHeader = "Chaos-Number"

// credential is what a caller of a key authenticates with. The owner has its own for each key.
func credential(key, stranger string) string {
	if stranger != "" {
		return "Bearer " + stranger + " made up"
	}
	return "Bearer owner of " + key
}

// call sends a request that the proxy guards. hangup, if it is not 0, is when the
// client gives up.
func (c *client) call(d *delivery, node int, hangup time.Duration) answer {
	r, err := http.NewRequest(http.MethodPost, "http://localhost/"+d.op, nil)
	if err != nil {
		panic(err) // operations have plain names
	}
	e := d.event(history.Call, node)
	e.ID, e.Wait = c.id(), d.wait
	r.Header.Set("Idempotency-Key", d.key)
	r.Header.Set(idHeader, e.ID)
	if d.number > 0 {
		r.Header.Set(numberHeader, strconv.Itoa(d.number))
	}
	if rules[d.op].Shared {
		r.Header.Set("Authorization", credential(d.key, d.caller))
	}
	if d.wait > 0 {
		r.Header.Set("Prefer", "wait="+strconv.Itoa(d.wait))
	}
	rep, a := c.send(e, r, d.content(), hangup)
	got := answer{word: history.None}
	if rep != nil {
		got = routed(rep, &a)
	}
	got.status = a.Status
	c.note(a)
	return got
}

// routed reads an answer that came through the proxy: the upstream's, or a refusal.
func routed(rep *reply, a *history.Event) answer {
	got := answer{after: retryAfter(rep.header)}
	replayed := rep.header.Get("Idempotency-Replayed") == "true"
	var problem struct {
		Code, Detail string
		named
	}
	if rep.header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(rep.body, &problem) == nil {
		got.word, a.Text, a.Next = problem.Code, problem.Detail, max(problem.Last, problem.Expected)
		got.link, _, _ = strings.Cut(strings.TrimPrefix(rep.header.Get("Link"), "<"), ">")
	}
	switch {
	case got.word != "":
	case rep.header.Get("Content-Type") != "application/json":
		// The server itself has refused an incomplete request; no handler has run.
		got.word = strconv.Itoa(rep.status)
	case rep.status >= 500:
		got.word = history.Failed
	case replayed:
		got.word, got.outcome = history.Replay, upstreamOutcome(rep.status, rep.header, rep.body)
	default:
		got.word, got.outcome = history.Answered, upstreamOutcome(rep.status, rep.header, rep.body)
	}
	a.Word, a.Outcome = got.word, got.outcome
	return got
}

// upstreamOutcome is an answer of the upstream, as every duplicate must get it.
func upstreamOutcome(status int, h http.Header, body []byte) string {
	return fmt.Sprintf("%d %s %s %s", status, h.Get("Content-Type"), h.Get("Location"), body)
}
