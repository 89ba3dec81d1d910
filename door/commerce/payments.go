package commerce

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	rules "github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

// paymentDocument is a payment in the form for callers.
type paymentDocument struct {
	ID            string `json:"id"`
	Order         string `json:"order"`
	User          string `json:"user"`
	Amount        string `json:"amount"`
	Currency      string `json:"currency"`
	State         string `json:"state"`
	TransactionID string `json:"transaction_id,omitempty"`
	// Why says why it is held, refused or not charged.
	Why string `json:"why,omitempty"`
}

// payment describes the record of a payment. Its state is charged, refused for good, in_flight,
// held if nobody knows until it is reconciled, or not_charged: the next delivery charges.
func payment(rec *semel.Record) paymentDocument {
	a := rec.Attributes
	p := paymentDocument{
		ID: rec.ID.Key, Order: a[rules.AttributeOrder], User: a[rules.AttributeUser], Amount: a[rules.AttributeAmount], Currency: a[rules.AttributeCurrency],
		State: "not_charged", TransactionID: a[store.AttributeTransactionID],
	}
	if f := rec.Failure; f != nil {
		p.Why = f.Message
	}
	switch {
	case rec.State == semel.Completed:
		p.State, p.Why = "charged", ""
	case rec.Held:
		p.State, p.Why = "held", rec.HeldReason
	case !rec.State.Terminal():
		p.State = "in_flight"
	case rec.Disposition == semel.DispositionRejected:
		p.State = "refused"
	}
	return p
}

// pay charges a payment once (MAP-PAY.1). The same payment again gets the recorded transaction,
// whether the answer of the charge or the gateway's webhook came first.
func (q *request) pay() (any, error) {
	var in struct {
		User     string `json:"user"`
		Order    string `json:"order"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		IntentAt int64  `json:"intent_at"`
		Mandate  string `json:"mandate"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	user, err := q.user(in.User)
	if err != nil {
		return nil, err
	}
	_, ans, err := q.payments.Pay(q.r.Context(), rules.Pay{
		Buyer: rules.Buyer{Tenant: q.caller.Tenant, User: user},
		Order: in.Order, Amount: in.Amount, Currency: in.Currency, IntentAt: time.Unix(in.IntentAt, 0), Mandate: in.Mandate,
	})
	q.event = door.EventOf(&ans)
	if err != nil {
		return nil, unpaid(&ans, err)
	}
	if ans.Decision == semel.Execute {
		q.status = http.StatusCreated
	} else {
		q.w.Header().Set("Idempotency-Replayed", "true")
	}
	q.w.Header().Set("Location", q.opts.Path+"/payments/"+url.PathEscape(ans.Record.ID.Key))
	return payment(ans.Record), nil
}

// unpaid returns why a payment has no transaction, in the words of the program that charged.
func unpaid(ans *semel.Answer, err error) error {
	switch rec := ans.Record; {
	case rec == nil:
		return checked(err)
	case rec.Held:
		return &semel.Error{Code: semel.CodeHeld, Message: rec.HeldReason}
	case rec.Failure != nil && rec.Failure.Code == rules.CodeMandateUnknown:
		return rules.ErrMandateExpired
	case rec.Failure != nil && !errors.Is(err, rules.ErrMandateExpired):
		return &semel.Error{Code: door.CodeOf(err), Message: rec.Failure.Message}
	}
	return err
}

// getPayment returns the state of the payment in the address, if the caller may see it.
func (q *request) getPayment() (any, error) {
	if _, err := q.owner(); err != nil {
		return nil, err
	}
	rec, err := q.payments.Find(q.r.Context(), q.caller.Tenant, q.r.PathValue("id"))
	if err == nil && !q.caller.acts() && rec.Attributes[rules.AttributeUser] != q.caller.Principal {
		err = semel.ErrNotFound
	}
	return payment(&rec), err
}

// reconcile settles a held payment by a report of the gateway, such as a webhook (MAP-PAY.2).
func (q *request) reconcile() (any, error) {
	var in struct {
		TransactionID string `json:"transaction_id"`
		Refused       bool   `json:"refused"`
	}
	if err := q.backEnd(); err != nil {
		return nil, err
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	if (in.TransactionID == "") != in.Refused {
		return nil, invalid("say transaction_id if the buyer was charged, or refused: true")
	}
	told := rules.Told{Reference: q.r.PathValue("id"), Refused: in.Refused, Charged: rules.Charged{TransactionID: in.TransactionID}}
	switch err := q.payments.Tell(q.r.Context(), q.caller.Tenant, told); {
	case errors.Is(err, semel.ErrConflict):
		return nil, &semel.Error{Code: semel.CodeAlreadyEnded, Message: "the payment was recorded otherwise: somebody has to look"}
	case err != nil:
		return nil, checked(err)
	}
	return q.getPayment()
}
