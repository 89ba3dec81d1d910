//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/history"
)

// upstream is a service that ignores keys: it executes every request, and logs that.
type upstream struct {
	note func(history.Event)
	work func(*rand.Rand) time.Duration // how long a request takes

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
	e := history.Event{
		At: now(), Kind: history.Arrival, Key: strings.TrimPrefix(r.URL.Path, "/") + "/" + order.Order, ID: r.Header.Get(idHeader), Payload: order.Amount,
	}
	body := fmt.Sprintf(`{"order":%q,"amount":%d,"receipt":"%016x"}`, order.Order, order.Amount, p.receipt)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	switch p.status {
	case http.StatusCreated:
		header.Set("Location", "/receipts/"+order.Order)
	case http.StatusUnprocessableEntity:
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
