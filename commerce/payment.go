package commerce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
)

// Pay is one payment of an order.
type Pay struct {
	Buyer Buyer
	Order string
	// Amount is in the smallest unit of the currency, such as cents, from 1.
	Amount   int64
	Currency string
	// IntentAt is when the buyer decided to pay, in whole seconds. It is stored with the
	// order before the first delivery and is the same in all: another one is another payment.
	IntentAt time.Time
	// Mandate is the ID of the buyer's mandate for this payment; see [Mandates]. Optional.
	Mandate string
}

// Charge is a request to a gateway.
type Charge struct {
	Pay
	// Key is the idempotency key for the gateway: the payment's own, or, if the gateway
	// doesn't take it, one derived from it. The context carries it as well, for requests by
	// [shield.KeyTransport].
	Key string
	// Reference is the key of the payment. Send it along as the gateway's reference or
	// metadata, so that webhooks and exports have it; see [Payments.Tell].
	Reference string
	// Signed is the mandate's Data.
	Signed []byte
}

// Charged is the gateway's answer.
type Charged struct {
	// TransactionID is the gateway's name of the payment. Without one the payment is held,
	// because nobody could find it at the gateway.
	TransactionID string `json:"transaction_id"`
	// Answer is anything else to keep.
	Answer []byte `json:"answer,omitempty"`
}

// PaymentOptions configure [NewPayments].
type PaymentOptions struct {
	// Operation is the policy of payments. Its name defaults to [PaymentOperation]. It is
	// always financial, of class [semel.Shielded], its one effect is the charge, and it
	// refuses payments with an intent older than its window: they may have been charged and
	// forgotten. A Reconcile of yours finds the key that the gateway has by
	// Gateway.Key(held.ID.Key).
	Operation semel.Operation
	// Gateway says which keys the gateway takes, such as [shield.Stripe].
	Gateway shield.Provider
	// Charge charges the buyer, at most once for each payment unless the gateway refused
	// or didn't try. Mark its errors as for [semel.Effect]; one without a mark holds the
	// payment. Required.
	Charge func(ctx context.Context, c Charge) (Charged, error)
	// Ask asks the gateway about the charge with this key, after its answer was lost or the
	// node that charged died. The zero Told, or an error, means that it doesn't know yet: the
	// engine asks again every ReconcileEvery of the operation. For a charge that the gateway
	// doesn't know, say Refused only if it remembers keys: the charge may still be on its way,
	// and the next delivery charges with the same key. Optional; it is the operation's
	// Reconcile, unless that has one. [semel.Engine.Run] calls it.
	Ask func(ctx context.Context, key string) (Told, error)
	// Mandates are required if payments have mandates.
	Mandates *Mandates
	// Elsewhere are other operations whose calls are payments, such as those of routes, with keys
	// by the format [Payment] and the attribute transaction_id. Their callers share them
	// ([semel.ShareTenant]). [Payments.Find] and [Payments.Tell] find them, too.
	Elsewhere []string
}

// Payments charges each payment once, and keeps the gateway's transaction with it
// (MAP-PAY.1, MAP-PAY.2). All methods may be called concurrently, on any number of nodes.
type Payments struct {
	engine *semel.Engine
	opts   PaymentOptions
}

// PaymentOperation is the usual name of the operation of payments.
const PaymentOperation = "commerce.payment"

// The effect of a payment, and the attributes of its record beside its transaction.
const (
	charge            = "charge"
	AttributeOrder    = "order_id"
	AttributeAmount   = "amount"
	AttributeCurrency = "currency"
	AttributeUser     = "user_id"
)

// NewPayments registers the operation of payments with an engine.
func NewPayments(engine *semel.Engine, opts PaymentOptions) (*Payments, error) {
	op := &opts.Operation
	op.Name = cmp.Or(op.Name, PaymentOperation)
	op.Financial, op.RefuseLate, op.Class, op.Effects = true, true, semel.Shielded, []string{charge}
	op.Shields = append([]semel.Shield{semel.ShieldProviderKey, semel.ShieldLedger}, op.Shields...)
	if opts.Charge == nil {
		return nil, errors.New("commerce: payments need Charge")
	}
	if op.Reconcile == nil && opts.Ask != nil {
		op.Reconcile = func(ctx context.Context, held semel.Record) (semel.Settlement, error) {
			t, err := opts.Ask(ctx, opts.Gateway.Key(held.ID.Key))
			if err != nil || !t.Refused && t.Charged.TransactionID == "" {
				return semel.Settlement{}, err
			}
			return t.settlement(opts.Gateway.Name, charge)
		}
	}
	return &Payments{engine, opts}, errors.Join(opts.Gateway.Validate(), engine.Register(*op))
}

// call is the call of a payment.
func (p *Payments) call(pay Pay) (semel.Call, error) {
	if pay.Amount < 1 || !currency.MatchString(pay.Currency) || pay.IntentAt.Unix() < 1 {
		return semel.Call{}, errors.New("commerce: a payment needs an Amount from 1, a Currency of three capital letters and IntentAt")
	}
	if pay.Mandate != "" && p.opts.Mandates == nil {
		return semel.Call{}, errors.New("commerce: the payment has a mandate, and PaymentOptions have no Mandates")
	}
	amount := strconv.FormatInt(pay.Amount, 10)
	key, err := Payment.Key(Values{"order_id": pay.Order, "amount": amount, "currency": pay.Currency, "intent.created_at": strconv.FormatInt(pay.IntentAt.Unix(), 10)})
	call := semel.Call{
		Tenant: pay.Buyer.Tenant, Operation: p.opts.Operation.Name, FirstSent: pay.IntentAt,
		// Nobody else gets the answer to a buyer's payment.
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(pay.Buyer.User), []byte(pay.Mandate)),
		Attributes:  store.Attributes{AttributeOrder: pay.Order, AttributeAmount: amount, AttributeCurrency: pay.Currency, AttributeUser: pay.Buyer.User},
	}
	key.Name(&call)
	return call, err
}

// Pay charges a payment, unless that was done; then everybody gets the same transaction. If
// nobody knows whether the buyer was charged, the payment is held until [Payments.Tell] or the
// operation's reconciler says. [ErrMandateExpired] means that nobody was charged.
func (p *Payments) Pay(ctx context.Context, pay Pay) (Charged, semel.Answer, error) {
	call, err := p.call(pay)
	if err != nil {
		return Charged{}, semel.Answer{}, err
	}
	ans, err := p.engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		var m Mandate
		if pay.Mandate != "" {
			var err error
			if m, err = p.opts.Mandates.Require(ctx, x, pay.Buyer, pay.Mandate); err != nil {
				return semel.Result{}, err
			}
		}
		done, err := semel.Effect(ctx, x, charge, func(ctx context.Context, _ string) (Charged, error) {
			// The key of the payment and not that of the effect: the gateway then knows it
			// also when this record is purged, for as long as it keeps keys.
			done, err := p.opts.Charge(shield.WithOwnKey(ctx, call.Key), Charge{pay, p.opts.Gateway.Key(call.Key), call.Key, m.Data})
			if err == nil && !done.named() {
				err = semel.Unknown(errors.New("the gateway named no transaction that can be kept"))
			}
			return done, err
		})
		if err != nil {
			return semel.Result{}, err
		}
		return done.result()
	})
	if err != nil {
		return Charged{}, ans, refusedFor(&ans, err)
	}
	var done Charged
	return done, ans, json.Unmarshal(ans.Record.Result.Data, &done)
}

// result is the recorded result of a charge. Its transaction is written with the outcome.
func (c Charged) result() (semel.Result, error) {
	data, err := json.Marshal(c)
	return semel.Result{Data: data, Attributes: store.Attributes{store.AttributeTransactionID: c.TransactionID}}, err
}

// named reports whether there is a transaction that a record can keep.
func (c Charged) named() bool {
	return c.TransactionID != "" && store.Attributes{store.AttributeTransactionID: c.TransactionID}.Validate() == nil
}

// Told is a gateway's report of a payment, other than its answer to the charge, such as a
// webhook.
type Told struct {
	// Reference is that of the [Charge].
	Reference string
	// Charged has the transaction, if the buyer was charged.
	Charged Charged
	// Refused says that the buyer wasn't charged, and won't be by this transaction.
	Refused bool
}

// Tell settles a payment that is held, because the answer of its gateway was lost. So one
// payment is one record, whether its webhook or its answer comes first:
//
//   - nil: the record says the same, now or before.
//   - [semel.ErrInFlight]: the charge is running, or its holder has died lately. Tell it
//     again later; a webhook's handler returns the error, and gets the event again.
//   - [semel.ErrNotFound]: there is no such payment.
//   - [semel.ErrConflict]: the record has another transaction, or says otherwise. Somebody
//     has to look.
//   - any other error: tell it again.
//
// After Refused the next delivery charges again, with the same key.
func (p *Payments) Tell(ctx context.Context, tenant string, t Told) error {
	rec, err := p.Find(ctx, tenant, t.Reference)
	if err != nil {
		return err
	}
	effects := []string{charge}
	if rec.ID.Operation != p.opts.Operation.Name {
		effects = slices.Collect(started(&rec))
	}
	s, err := t.settlement(p.opts.Gateway.Name, effects...)
	if err != nil {
		return err
	}
	was, known := charged(&rec)
	switch {
	case known && !t.Refused && was.TransactionID == t.Charged.TransactionID, !known && t.Refused && rec.State.Terminal():
		return nil
	case known || rec.State.Terminal():
		return fmt.Errorf("commerce: the payment was recorded otherwise: %w", semel.ErrConflict)
	case !rec.Held:
		return semel.ErrInFlight
	}
	// A crash before this write leaves the payment held, and the gateway's report comes again.
	// A crash after it leaves nothing to do.
	s.Fence = rec.Fence // the effects are those of this attempt
	_, err = p.engine.Settle(ctx, rec.ID, s, "told by the gateway")
	return err
}

// Find returns the record of a payment by its reference, which is its key.
// [semel.ErrNotFound] means that there is none.
func (p *Payments) Find(ctx context.Context, tenant, reference string) (semel.Record, error) {
	call, ok := p.callOf(reference)
	if call.Tenant = tenant; !ok {
		return semel.Record{}, semel.ErrNotFound
	}
	rec, err := p.engine.Lookup(ctx, call.ID(semel.SharePrincipal)) // which it hasn't
	for i := 0; errors.Is(err, semel.ErrNotFound) && i < len(p.opts.Elsewhere); i++ {
		call.Operation = p.opts.Elsewhere[i]
		rec, err = p.engine.Lookup(ctx, call.ID(semel.ShareTenant))
	}
	return rec, err
}

// started yields the effects of a record that have no result.
func started(rec *semel.Record) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, ef := range rec.Effects {
			if ef.State == store.EffectStarted && !yield(ef.Name) {
				return
			}
		}
	}
}

// settlement settles a held payment, with its effects, by what its gateway says.
func (t Told) settlement(who string, effects ...string) (s semel.Settlement, err error) {
	s.Who = who
	found := store.EffectFinding{State: store.EffectRefuted}
	switch {
	case t.Refused && len(effects) == 0:
		s.Outcome = semel.DispositionAborted
	case t.Refused:
	case !t.Charged.named():
		return s, errors.New("commerce: say which transaction has charged the buyer")
	default:
		s.Result, err = t.Charged.result()
		s.Outcome, found.State, found.Result = semel.DispositionCompleted, store.EffectConfirmed, s.Result
	}
	for _, found.Name = range effects {
		s.Effects = append(s.Effects, found)
	}
	return s, err
}

// charged is the charge that a record has, in its ledger or as its outcome.
func charged(rec *semel.Record) (c Charged, known bool) {
	for _, ef := range rec.Effects {
		known = ef.Name == charge && ef.State == store.EffectConfirmed && json.Unmarshal(ef.Result.Data, &c) == nil
	}
	if !known && rec.State == semel.Completed { // of a call elsewhere
		c.TransactionID = rec.Attributes[store.AttributeTransactionID]
		known = c.TransactionID != ""
	}
	return c, known
}

// callOf is the call that a reference names.
func (p *Payments) callOf(reference string) (semel.Call, bool) {
	parts := strings.Split(reference, ":")
	if len(parts) != 5 {
		return semel.Call{}, false
	}
	order, err := url.PathUnescape(parts[1])
	amount, err2 := strconv.ParseInt(parts[2], 10, 64)
	at, err3 := strconv.ParseInt(parts[4], 10, 64)
	call, err4 := p.call(Pay{Order: order, Amount: amount, Currency: parts[3], IntentAt: time.Unix(at, 0)})
	return call, errors.Join(err, err2, err3, err4) == nil && call.Key == reference
}
