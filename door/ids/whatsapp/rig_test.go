package whatsapp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

const (
	secret = "an app's secret"
	phone  = "770001"
	alice  = "351910000007"
)

const registry = `
version: 1
commands:
  - {entity: order, action: refund, evidence: durable, per_record: {per_second: 1000, burst: 1000}, handler: {func: refund}}
  - {entity: order, action: cancel, confirmation: {ttl: 1m}, handler: {func: refund}}
`

// rig is an ingress on a store, and a dispatcher that works when it is told.
type rig struct {
	t       *testing.T
	in      *Ingress
	engine  *semel.Engine
	log     *evidence.Log
	store   *flaky
	refunds sync.Map      // by order: how often it was refunded
	hold    chan struct{} // closed when refunds may go on; nil: at once
	arrived chan struct{} // gets one for each that is held

	mu      sync.Mutex
	asked   map[string]int // messages that were mapped, by id
	due     [][]byte       // payloads that were sent to the outbox
	seen    []semel.Delivered
	refused []semel.Code
	replies []string
	news    []string
	button  string
	another bool // the mapper says something else now
	mapErr  error
}

// flaky is a store that can be away.
type flaky struct {
	semel.Store
	mu   sync.Mutex
	away bool
	gate chan struct{} // outcomes are kept when it is closed; nil: at once
}

func (s *flaky) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away {
		return nil, false, errors.New("the store is away")
	}
	if s.gate != nil && w.Record.State == semel.Completed {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	return s.Store.Apply(ctx, w)
}

func (s *flaky) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, store: &flaky{Store: memstore.New()}, asked: map[string]int{}}
	keys, err := evidence.GenerateKeys("example.com/whatsapp")
	if err != nil {
		t.Fatal(err)
	}
	if r.log, err = evidence.New(r.store, keys, nil); err != nil {
		t.Fatal(err)
	}
	events := &semel.Events{Answered: func(e semel.Delivered) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case e.Door != Name:
		case e.Attrs == nil: // a batch that was refused
			r.refused = append(r.refused, e.Code)
		default:
			r.seen = append(r.seen, e)
		}
	}}
	if r.engine, err = semel.New(r.store, &semel.Options{Witness: r.log, Events: events}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.store.set(false)
		if err := errors.Join(r.log.Close(context.Background()), r.engine.Close(context.Background()), r.store.Close()); err != nil {
			t.Error(err)
		}
	})
	r.engine.Internal().SetDispatcher(r.Dispatch)
	bindings := &ids.Bindings{Handlers: map[string]ids.Handler{"refund": r.refund}}
	reg, err := ids.Load([]byte(registry), ids.LoadOptions{Bindings: bindings})
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := ids.New(r.engine, ids.Options{Registry: reg, Bindings: bindings})
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{
		Gateway: gateway, AppSecrets: []string{secret}, VerifyToken: "the owner's token",
		Tenant: func(id string) (string, bool) { return "acme", id == phone },
		Map:    MapperFunc(r.mapped), Reply: r.reply, Status: r.status,
	}
	for _, f := range change {
		f(&opts)
	}
	if r.in, err = New(r.engine, opts); err != nil {
		t.Fatal(err)
	}
	return r
}

// Dispatch keeps what is to be worked on.
func (r *rig) Dispatch(rec *semel.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rec.Outbox {
		r.due = append(r.due, rec.Outbox[i].Payload)
	}
}

// work works on all that is due, each once, and returns what went wrong.
func (r *rig) work() (errs []error) {
	r.mu.Lock()
	due := r.due
	r.due = nil
	r.mu.Unlock()
	for _, payload := range due {
		if err := r.in.Work(context.Background(), payload); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// mapped understands "refund ORDER AMOUNT", "cancel ORDER" and the button that
// confirms a cancellation.
func (r *rig) mapped(_ context.Context, m *Message) (ids.Command, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[m.ID]++
	if r.mapErr != nil {
		return ids.Command{}, r.mapErr
	}
	words := strings.Fields(m.Text)
	if len(words) < 2 {
		return ids.Command{}, ErrNoCommand
	}
	c := ids.Command{Intent: ids.Intent{Entity: "order", Action: words[0], Target: ids.TargetOf(words[1])}}
	Confirm(&c, m.Button)
	if len(words) > 2 {
		c.Args = json.RawMessage(`{"amount":"` + words[2] + `"}`)
	}
	if r.another {
		c.Args = json.RawMessage(`{"amount":"another"}`)
	}
	return c, nil
}

func (r *rig) refund(_ context.Context, _ semel.Execution, d *ids.Derivation) (semel.Result, error) {
	if r.hold != nil {
		r.arrived <- struct{}{}
		<-r.hold
	}
	order := d.Command.Intent.Target.IDs()[0]
	for {
		n, loaded := r.refunds.LoadOrStore(order, 1)
		if !loaded || r.refunds.CompareAndSwap(order, n, n.(int)+1) {
			return ids.Done("Refunded "+order+".", map[string]string{"order": order})
		}
	}
}

// refunded is how often an order was refunded.
func (r *rig) refunded(order string) int {
	n, _ := r.refunds.Load(order)
	times, _ := n.(int)
	return times
}

func (r *rig) reply(_ context.Context, m *Message, resp *ids.Response, refused error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if refused != nil {
		r.replies = append(r.replies, m.ID+" refused")
		return nil
	}
	if resp.Confirmation != nil {
		r.button = ConfirmButton(resp)
	}
	r.replies = append(r.replies, fmt.Sprintf("%s %s %s %s", m.ID, resp.Status, resp.Decision, resp.Summary))
	return nil
}

func (r *rig) status(_ context.Context, s *Status) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.news = append(r.news, s.Status)
	slices.Sort(r.news)
	return nil
}

// post delivers a body, signed.
func (r *rig) post(body []byte) int {
	return r.send(body, http.Header{SignatureHeader: {Sign(secret, body)}})
}

func (r *rig) send(body []byte, header http.Header) int {
	req := httptest.NewRequest(http.MethodPost, "/webhooks/whatsapp", bytes.NewReader(body))
	req.Header = header
	w := httptest.NewRecorder()
	r.in.ServeHTTP(w, req)
	return w.Code
}

// stored reports whether anything was written.
func (r *rig) stored() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)+len(r.due) > 0
}

// text is a message with a text.
func text(id, from, body string) string {
	return fmt.Sprintf(`{"from":%q,"id":%q,"timestamp":"1767323045","type":"text","text":{"body":%q}}`, from, id, body)
}

// deliveryOf is the body of a delivery with these messages.
func deliveryOf(number string, messages ...string) []byte {
	return fmt.Appendf(nil, `{"object":"whatsapp_business_account","entry":[{"id":"880","changes":[{"field":"messages","value":{"messaging_product":"whatsapp","metadata":{"phone_number_id":%q},"messages":[%s]}}]}]}`,
		number, strings.Join(messages, ","))
}
