//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/history"
)

// idHeader carries the id of a request through the proxy to the upstream.
const idHeader = "Chaos-Id"

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
	var problem struct{ Code, Detail string }
	if rep.header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(rep.body, &problem) == nil {
		got.word, a.Text = problem.Code, problem.Detail
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
