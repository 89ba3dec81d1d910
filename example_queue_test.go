package semel_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// delivered is a message of a queue, by what every queue has.
type delivered struct {
	Key  string // names the message: the queue's, or better its producer's
	Sent time.Time
	Body []byte
}

// next is what a consumer tells its queue about a delivery.
type next string

const (
	acknowledge next = "acknowledge"
	again       next = "again"
	aside       next = "aside"
)

// consumer does the work of the messages of a queue.
type consumer struct {
	engine semel.Doer
	create func(ctx context.Context, body []byte) (order int, err error)
}

// snippet: Consumer
var (
	over   = []semel.Code{semel.CodeRejected, semel.CodeResultNotKept, semel.CodeSuperseded}
	passes = []semel.Code{"", semel.CodeInFlight, semel.CodeAborted, semel.CodeHeld, semel.CodeUnknown, semel.CodeThrottled,
		semel.CodeSequenceGap, semel.CodeLeaseLost, semel.CodeStoreUnavailable, semel.CodeClosed}
)

func (c *consumer) deliver(ctx context.Context, m delivered) (say next, pause time.Duration) {
	_, _, err := semel.Do(ctx, c.engine, semel.Call{
		Principal: "shop", Operation: "orders.create", Key: m.Key, FirstSent: m.Sent,
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, m.Body),
	}, func(ctx context.Context, _ semel.Execution) (int, error) {
		return c.create(ctx, m.Body) // once, however often the queue delivers m
	})
	e := new(semel.Error) // it has no code if the consumer is being stopped
	switch errors.As(err, &e); {
	case err == nil || slices.Contains(over, e.Code):
		return acknowledge, 0
	case slices.Contains(passes, e.Code):
		return again, e.RetryAfter // zero: as the queue says
	}
	return aside, 0 // another delivery would get the same
}

// end snippet

// A consumer of a queue does the work of a message once, whatever its queue delivers again, and
// knows what to acknowledge.
func ExampleDo_queue() {
	engine, err := semel.New(memstore.New(), &semel.Options{
		Operations: []semel.Operation{{Name: "orders.create", RefuseLate: true}},
	})
	if err != nil {
		panic(err)
	}
	orders := 0
	c := consumer{engine, func(_ context.Context, body []byte) (int, error) {
		switch string(body) {
		case "no such item":
			return 0, semel.Rejected("no_such_item", errors.New("there is no such item"))
		case "a silent provider":
			return 0, semel.Unknown(errors.New("the provider did not answer"))
		}
		orders++
		return orders, nil
	}}
	ctx, now := context.Background(), time.Now()
	for _, m := range []delivered{
		{"order-1", now, []byte("a lamp")}, {"order-1", now, []byte("a lamp")}, // acknowledged, and delivered again
		{"order-2", now, []byte("no such item")},
		{"order-1", now, []byte("another lamp")},
		{"order-0", now.AddDate(-1, 0, 0), []byte("a lamp")}, // somebody reads the queue from its beginning
		{"order-3", now, []byte("a silent provider")}, {"order-3", now, []byte("a silent provider")},
	} {
		said, pause := c.deliver(ctx, m)
		fmt.Println(m.Key, said, pause)
	}
	_, err = engine.Settle(ctx, semel.ID{Principal: "shop", Operation: "orders.create", Key: "order-3"},
		semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte("7")}}, "seen at the provider")
	if err != nil {
		panic(err)
	}
	fmt.Println(c.deliver(ctx, delivered{"order-3", now, []byte("a silent provider")}))
	fmt.Println("orders:", orders)

	// Output:
	// order-1 acknowledge 0s
	// order-1 acknowledge 0s
	// order-2 acknowledge 0s
	// order-1 aside 0s
	// order-0 aside 0s
	// order-3 again 0s
	// order-3 again 1m0s
	// acknowledge 0s
	// orders: 1
}

// refusing answers each call by one error.
type refusing struct{ err error }

func (r refusing) Do(context.Context, semel.Call, func(context.Context, semel.Execution) (semel.Result, error)) (semel.Answer, error) {
	return semel.Answer{}, r.err
}

// TestWhatAConsumerAcknowledges: it acknowledges nothing that may still have to be done, and puts
// nothing aside whose outcome may still come. The page says the same.
func TestWhatAConsumerAcknowledges(t *testing.T) {
	says := map[semel.Code]next{
		semel.CodeRejected: acknowledge, semel.CodeResultNotKept: acknowledge, semel.CodeSuperseded: acknowledge,
		semel.CodeInFlight: again, semel.CodeAborted: again, semel.CodeHeld: again, semel.CodeUnknown: again, semel.CodeThrottled: again,
		semel.CodeSequenceGap: again, semel.CodeLeaseLost: again, semel.CodeStoreUnavailable: again, semel.CodeClosed: again,
	}
	page, err := os.ReadFile("docs/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range semel.Codes() {
		want := cmp.Or(says[code], aside)
		row := regexp.MustCompile("(?m)^\\|[^|]*`" + string(code) + "`[^|]*\\| ([^|]*) \\|").FindSubmatch(page)
		if row == nil && want != aside || row != nil && !strings.Contains(string(row[1]), string(want)) {
			t.Errorf("docs/queues.md says %q for %s, not %s", row, code, want)
		}
		c := consumer{engine: refusing{&semel.Error{Code: code}}}
		if said, _ := c.deliver(t.Context(), delivered{Key: "order-1"}); said != want {
			t.Errorf("after %s: %s", code, said)
		}
	}
	c := consumer{engine: refusing{context.Canceled}}
	if said, _ := c.deliver(t.Context(), delivered{Key: "order-1"}); said != again {
		t.Errorf("when the consumer is stopped: %s", said)
	}
}
