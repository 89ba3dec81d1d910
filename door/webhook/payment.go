package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// PaymentRule says which events are about a payment.
type PaymentRule struct {
	// What distinguishes the events below. Defaults to their type.
	Kind string `json:"kind,omitzero"`
	// What identifies the payment of an event.
	ID string `json:"id,omitzero"`
	// Events, and the transitions that they are. Others have no payment.
	Events []PaymentEvent `json:"events,omitempty" required:"true"`

	kind, id template
}

// PaymentEvent is a kind of event and the payment's transition that it stands for.
type PaymentEvent struct {
	// Kind of the event.
	Kind string `json:"kind" required:"true"`
	// Name of the transition, as the machine names it.
	Is string `json:"is" required:"true"`
	// What identifies the payment, if these events say it elsewhere.
	ID string `json:"id,omitzero"`

	id template
}

// Payment is what an event means to its payment.
type Payment struct {
	// ID is the gateway's name for the payment.
	ID string `json:"id"`
	// On is what happened, as the machine names it.
	On string `json:"on"`
	// Step says what that means: a handler gets only [Applied] and [Late].
	Step Step `json:"step,omitempty"`
	// State is the payment's state after the step, and Sequence counts the events applied to
	// it. Two events of a payment may reach handlers at once: the one with the higher number is
	// newer.
	State    string `json:"state,omitempty"`
	Sequence int    `json:"sequence,omitempty"`
}

const (
	// CodeTransition refuses an event that can't happen to its payment.
	CodeTransition Code = "invalid_transition"
	// CodeErased refuses an event after it, or its payment, was erased.
	CodeErased Code = "payment_erased"
	// waitAgain is how long an event waits for an earlier one.
	waitAgain = 5 * time.Second
	// maxPaymentEvents bounds the events of one payment, so that its state stays small.
	maxPaymentEvents = 1000
	// maxSwaps bounds how often a step is retried because another event came first. Each time
	// that other event succeeded.
	maxSwaps = 100
)

var errWaiting = errors.New("what has to happen to the payment before has not been heard of yet")

// paymentOf finds the payment of an event, by its source; nil if it has none.
func (s *Source) paymentOf(e *Event) *Payment {
	p := &s.Payment
	if len(p.Events) == 0 {
		return nil
	}
	kind := e.Type
	if p.kind != nil {
		kind, _ = e.view.fill(p.kind) // a missing value isn't any kind of event
		kind = strings.TrimSpace(kind)
	}
	i := slices.IndexFunc(p.Events, func(pe PaymentEvent) bool { return pe.Kind == kind })
	if i < 0 {
		return nil
	}
	id, err := e.view.fill(p.Events[i].id)
	if err != nil {
		return nil // such as a charge without a payment
	}
	return &Payment{ID: id, On: p.Events[i].Is}
}

// history is the value of a payment's cell.
type history struct {
	// Been has the states that the payment was in, each once, the present one last.
	Been []string `json:"been"`
	// Sequence counts the events that were applied.
	Sequence int `json:"sequence"`
	// Events has the decided events, by their ids.
	Events map[string]Payment `json:"events"`
}

// payment returns the payment's name in the record of an event; empty if it has none.
func (r *Receiver) payment(e *Event) string {
	m, p := r.opts.Payments, e.Payment
	if m == nil || p == nil || !m.knows(p.On) {
		return ""
	}
	return m.Name + "/" + join([]string{r.opts.Name, p.ID}, store.MaxKeyLen/4)
}

// advance decides what an event means to its payment. The first decision stands: another try
// gets the same one, unless the event waits. Each of several concurrent events is decided in
// the state that the one before it left.
func (r *Receiver) advance(ctx context.Context, e *Event) error {
	name := r.payment(e)
	if name == "" {
		e.Payment = nil
		return nil
	}
	m, p := r.opts.Payments, e.Payment
	// An event that was accepted under an earlier configuration keeps its tenant.
	id := store.PaymentOf(e.Tenant, name)
	cell := store.NewCell(r.engine.Internal().Store(), id)
	for range maxSwaps {
		was, err := cell.Load(ctx)
		if err != nil {
			return err
		}
		h, err := m.history(was.Data)
		if err != nil {
			return err
		}
		if known, ok := h.Events[e.ID]; ok {
			*p = known
			return p.verdict()
		}
		// Ask after loading the state: an erasure is declared first and then changes the state.
		if erased, err := r.engine.Internal().Erased(ctx, id, store.PaymentOf(e.Tenant, m.Name+"/"+e.ID)); err != nil {
			return err
		} else if erased {
			return inbox.Refuse(CodeErased, "the event or all that was known of its payment was erased: what it means can't be told")
		}
		if err := h.add(m, e); err != nil || p.Step == Waiting {
			return cmp.Or(err, p.verdict())
		}
		data, err := json.Marshal(&h)
		if err != nil {
			return err
		}
		// A crash before this write leaves the payment as it was, and the event
		// undecided. A crash after it leaves a decision that the next try finds.
		// Nobody has to clean up: the cell is purged when the machine says so.
		_, swapped, err := cell.Swap(ctx, was, store.CellValue{Data: data, KeepFor: time.Duration(m.Keep)})
		if err != nil {
			return err
		}
		if swapped {
			return p.verdict()
		}
	}
	return &Later{After: time.Second, Err: errors.New("the state of the payment changes too fast")}
}

// history reads the value of a payment's cell; nil stands for a payment without events.
func (m *Machine) history(data []byte) (h history, err error) {
	h = history{Been: []string{m.Initial}, Events: map[string]Payment{}}
	if data == nil {
		return h, nil
	}
	switch err := form.Read(data, 1, &h); {
	case errors.Is(err, form.ErrNewer):
		return h, fmt.Errorf("the state of the payment: %w", err) // another node may know
	case err != nil:
		return h, inbox.Refuse(CodeUnreadable, "the state of the payment can't be read")
	}
	return h, nil
}

// add decides the next event, and adds it unless it has to wait.
func (h *history) add(m *Machine, e *Event) error {
	p := e.Payment
	p.State, p.Step = m.step(h.Been, p.On)
	p.Sequence = h.Sequence
	switch {
	case p.Step == Waiting:
		return nil
	case len(h.Events) >= maxPaymentEvents:
		return inbox.Refuse(CodeTransition, "the payment has had %d events already", maxPaymentEvents)
	case p.Step == Applied:
		h.Been = append(slices.DeleteFunc(h.Been, func(s string) bool { return s == p.State }), p.State)
		h.Sequence++
		p.Sequence = h.Sequence
	}
	h.Events[e.ID] = *p
	return nil
}

// verdict returns nil if a handler gets the event.
func (p *Payment) verdict() error {
	switch p.Step {
	case Waiting:
		return &Later{After: waitAgain, Err: errWaiting}
	case Refused:
		return inbox.Refuse(CodeTransition, "%s can't happen to a payment that is %s", p.On, p.State)
	}
	return nil
}
