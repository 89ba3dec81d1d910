// Package payments compares the records of payments with a gateway's own list of transactions.
package payments

import (
	"maps"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/store"
)

// Discrepancy is the kind of a finding.
type Discrepancy string

// The kinds of findings.
const (
	NoTransactionID Discrepancy = "no_transaction_id"
	NoTransaction   Discrepancy = "no_transaction"
	NoPayment       Discrepancy = "no_payment"
	ChargedTwice    Discrepancy = "charged_twice"
	Shared          Discrepancy = "shared_transaction"
	AmountDiffers   Discrepancy = "amount_differs"
)

var means = map[Discrepancy]string{
	NoTransactionID: "the payment has no id of a transaction at the gateway",
	NoTransaction:   "the gateway has no such transaction of the payment",
	NoPayment:       "no payment has this transaction",
	ChargedTwice:    "the payment has another transaction, and this one names it too",
	Shared:          "another payment has this transaction too",
	AmountDiffers:   "the payment and the transaction differ in amount or currency",
}

// Meaning describes the discrepancy in a sentence.
func (d Discrepancy) Meaning() string { return means[d] }

// Finding is a discrepancy between a payment and a transaction. One of them may be missing.
type Finding struct {
	Kind Discrepancy `json:"kind"`
	Transaction
	// Record is the id of the payment's record, and Key its key.
	Record string `json:"record,omitempty"`
	Key    string `json:"idempotency_key,omitempty"`
	State  string `json:"state,omitempty"`
}

// Report is the result of a comparison.
type Report struct {
	Payments     int       `json:"payments"`
	Transactions int       `json:"transactions"`
	Findings     []Finding `json:"findings"`
}

// Empty reports whether there was nothing to compare, which proves nothing about the payments.
func (r *Report) Empty() bool { return r.Payments == 0 && r.Transactions == 0 }

// Comparer compares payments, one by one.
type Comparer struct {
	export  *Export // nil: no export
	stateOf func(*semel.Record) string
	refs    map[string][]*Transaction
	ids     map[string]bool // of transactions that payments name
	report  Report
}

// NewComparer compares with an export, or with nil only looks for payments without a
// transaction id. stateOf names the state of a record in a finding.
func NewComparer(export *Export, stateOf func(*semel.Record) string) *Comparer {
	c := &Comparer{export: export, stateOf: stateOf, ids: map[string]bool{}, report: Report{Findings: []Finding{}}}
	if export != nil {
		c.refs, c.report.Transactions = export.byReference(), len(export.found)
	}
	return c
}

// Add compares one payment.
func (c *Comparer) Add(rec *semel.Record) {
	id := rec.Attributes[store.AttributeTransactionID]
	charged := rec.State == semel.Completed || rec.Held || slices.ContainsFunc(rec.Effects, func(ef store.EffectRecord) bool { return ef.State == store.EffectConfirmed })
	named := c.refs[rec.ID.Key]
	if charged || id != "" {
		c.report.Payments++
	}
	switch own := c.transaction(id); {
	case id == "" && charged:
		t := &Transaction{}
		if len(named) > 0 { // the export has more than the record
			t, named = named[0], named[1:]
			t.payments++
		}
		c.find(NoTransactionID, t, rec)
	case id == "":
	case c.ids[id]:
		c.find(Shared, &Transaction{ID: id}, rec)
	case c.export != nil && own == nil:
		c.find(NoTransaction, &Transaction{ID: id}, rec)
	case own != nil:
		own.payments++
		differs := func(attribute, there string) bool {
			here := rec.Attributes[attribute]
			return here != "" && there != "" && here != there
		}
		if differs(commerce.AttributeAmount, own.Amount) || differs(commerce.AttributeCurrency, own.Currency) {
			c.find(AmountDiffers, own, rec)
		}
	}
	if id != "" {
		c.ids[id] = true
	}
	for _, t := range named {
		if t.ID == id {
			continue
		}
		kind := ChargedTwice
		if !charged && id == "" {
			kind = NoPayment // for example a refused one
		}
		t.payments++
		c.find(kind, t, rec)
	}
}

// transaction returns a transaction of the export, or nil.
func (c *Comparer) transaction(id string) *Transaction {
	if c.export == nil {
		return nil
	}
	return c.export.found[id]
}

func (c *Comparer) find(kind Discrepancy, t *Transaction, rec *semel.Record) {
	f := Finding{Kind: kind, Transaction: *t}
	if rec != nil {
		f.Record, f.Key, f.State = rec.ID.Encode(), rec.ID.Key, c.stateOf(rec)
	}
	c.report.Findings = append(c.report.Findings, f)
}

// Report adds the transactions without a payment, and returns all findings. Call it once, after
// the last payment.
func (c *Comparer) Report() *Report {
	if c.export != nil {
		for _, id := range slices.Sorted(maps.Keys(c.export.found)) {
			if t := c.export.found[id]; t.payments == 0 {
				c.find(NoPayment, t, nil)
			}
		}
	}
	return &c.report
}
