package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/storm"
)

const stormSecret = "the secret of the storm"

func TestMain(m *testing.M) { os.Exit(storm.Main(m, stormNode)) }

// stormNode is a receiver and a dispatcher.
func stormNode(ctx context.Context, engine *semel.Engine, sinkURL string) (http.Handler, error) {
	source, err := webhook.Builtin("github")
	if err != nil {
		return nil, err
	}
	sink, err := dispatch.HTTP(dispatch.HTTPOptions{URL: sinkURL, AllowPrivate: true})
	if err != nil {
		return nil, err
	}
	r, err := webhook.New(engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{stormSecret}},
		Handle: func(ctx context.Context, e *webhook.Event) error {
			return sink.Deliver(ctx, dispatch.Delivery{Message: &semel.Message{ID: e.ID, Payload: e.Body}})
		},
	})
	if err != nil {
		return nil, err
	}
	d, err := dispatch.New(engine, dispatch.Options{Interval: 50 * time.Millisecond, Destinations: map[string]dispatch.Destination{
		r.Destination(): {
			Sender:  dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error { return r.Work(ctx, d.Message.Payload) }),
			Timeout: time.Minute, Lease: time.Second, MinBackoff: 10 * time.Millisecond, BreakAfter: -1,
		},
	}})
	if err != nil {
		return nil, err
	}
	go func() { _ = d.Run(ctx) }()
	return r, nil
}

// arrivals is what gets the events.
type arrivals struct {
	mu       sync.Mutex
	ids      map[string]string // of events, by their bodies
	effects  map[string]int    // arrivals by id
	wrong    []string
	complete chan struct{} // closed when every event has arrived
	events   int
}

// TestStorm has senders deliver every event several times, in random order, while some
// hang up and nodes are killed. Each event arrives under one id of its own, and none is
// lost.
func TestStorm(t *testing.T) {
	events, kills := storm.Size()
	storm.OnEach(t, func(t *testing.T, store storm.Store) {
		a := &arrivals{ids: map[string]string{}, effects: map[string]int{}, complete: make(chan struct{}), events: events}
		sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err == nil {
				a.arrived(string(body), r.Header.Get("webhook-id"))
			}
		}))
		t.Cleanup(sink.Close)
		source, err := webhook.Builtin("github")
		if err != nil {
			t.Fatal(err)
		}
		storm.Start(t, store, sink.URL).Play(events, kills, func(ctx context.Context, url string, event int) bool {
			return post(ctx, url, event, source) == nil
		})
		<-a.complete // the deadline of the test is that of events which are lost
		a.check(t, kills)
	})
}

func (a *arrivals) arrived(body, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	other, known := a.ids[body]
	if known && other != id {
		a.wrong = append(a.wrong, body+" has the ids "+other+" and "+id)
	}
	a.ids[body] = id
	a.effects[id]++
	if !known && len(a.ids) == a.events {
		close(a.complete)
	}
}

func (a *arrivals) check(t *testing.T, kills int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.effects) != a.events || len(a.wrong) > 0 {
		t.Errorf("%d events have %d ids: %q", a.events, len(a.effects), a.wrong)
	}
	again := 0
	for _, n := range a.effects {
		again += n - 1
	}
	t.Logf("%d events, each delivered %d times, %d kills: each under one id, %d arrived again under theirs", a.events, storm.Copies, kills, again)
}

func post(ctx context.Context, url string, event int, source *webhook.Source) error {
	body := fmt.Appendf(nil, `{"event":%d}`, event)
	d := &webhook.Delivery{Header: http.Header{"X-Github-Delivery": {fmt.Sprint("event-", event)}, "X-Github-Event": {"push"}}, Body: body}
	if err := source.Sign(d, stormSecret, "", time.Now()); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = d.Header
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(string(text))
	}
	return err
}
