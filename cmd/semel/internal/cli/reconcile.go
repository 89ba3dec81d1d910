package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/store"
)

func reconcileCommand() *cobra.Command {
	from := newRecordsFrom()
	cmd := &cobra.Command{
		Use:     "reconcile",
		Short:   "Compare records with a provider's data",
		Example: `  semel reconcile payments --export transactions.csv`,
	}
	from.source.add(cmd.PersistentFlags())
	cmd.AddCommand(newReconcilePayments(from))
	return cmd
}

// A discrepancy is what is wrong with a payment or a transaction.
type discrepancy string

const (
	noTransactionID  discrepancy = "no_transaction_id"
	noTransaction    discrepancy = "no_transaction"
	noPayment        discrepancy = "no_payment"
	chargedTwice     discrepancy = "charged_twice"
	sharedCharge     discrepancy = "shared_transaction"
	amountDiscrepant discrepancy = "amount_differs"
)

var discrepancyMeans = map[discrepancy]string{
	noTransactionID:  "the payment has no id of a transaction at the gateway",
	noTransaction:    "the gateway has no such transaction of the payment",
	noPayment:        "no payment has this transaction",
	chargedTwice:     "the payment has another transaction, and this one names it too",
	sharedCharge:     "another payment has this transaction too",
	amountDiscrepant: "the payment and the transaction differ in amount or currency",
}

// paymentFinding is one discrepancy.
type paymentFinding struct {
	Kind discrepancy `json:"kind"`
	transaction
	// Record names the payment's record, and Key is its key.
	Record string `json:"record,omitempty"`
	Key    string `json:"idempotency_key,omitempty"`
	State  string `json:"state,omitempty"`
}

// paymentReport is what a comparison has found.
type paymentReport struct {
	Payments     int              `json:"payments"`
	Transactions int              `json:"transactions"`
	Findings     []paymentFinding `json:"findings"`
}

// nothing reports whether nothing was compared, which says nothing about the payments.
func (r *paymentReport) nothing() bool { return r.Payments == 0 && r.Transactions == 0 }

func newReconcilePayments(from *recordsFrom) *cobra.Command {
	var asJSON bool
	var file string
	var columns, statuses []string
	cmd := &cobra.Command{
		Use:   "payments [QUALIFIER...]",
		Short: "Find payments without a transaction at the gateway, and the reverse",
		Long: `Find payments without the id of a transaction at the gateway. With --export, also
compare payments with the gateway's own list: transactions that no payment has,
payments whose transaction isn't there, payments that were charged twice, and amounts
that differ. It changes nothing. The exit code is 1 if something was found, or if there
was nothing to compare.

Payments are the records of the operation ` + commerce.PaymentOperation + `, or of the one that a
qualifier names. Those that are running are left out, as are refused ones. A payment's
transaction is its attribute ` + store.AttributeTransactionID + `. All qualifiers must apply:
` + qualifiers + `

The export is CSV with a head line, or a JSON object in each line. It has the columns
transaction_id, and reference (the payment's key), amount, currency and status if the
gateway tells them. An amount is in the smallest unit, or with a point and all digits
of its currency. The last line of a transaction counts. Select payments of the same
time as the export, by after: and before:.

The kinds are no_transaction_id, no_transaction, no_payment, charged_twice,
shared_transaction and amount_differs. The JSON has payments and transactions, which
count what was compared, and findings (kind, transaction_id, reference, amount,
currency, status, record, idempotency_key, state).`,
		Example: `  semel reconcile payments --store pebble:./semel-data
  semel reconcile payments --context prod after:2026-01-01 before:2026-01-02 \
    --export stripe.csv --column transaction_id=id --column reference='reference (metadata)' --status succeeded`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := parseQuery(args)
			if err != nil {
				return err
			}
			if q.Operation == "" && q.Digest == "" {
				q.Operation = commerce.PaymentOperation
			}
			c := &paymentComparer{}
			if err := c.load(file, columns, statuses); err != nil {
				return err
			}
			err = from.look(cmd, func(ctx context.Context, recs client.Records) error { return c.compare(ctx, cmd, recs, q) })
			if err != nil {
				return err
			}
			r := c.report()
			return printReport(cmd.OutOrStdout(), asJSON, r, func(w io.Writer) error { return printPayments(w, r) }, len(r.Findings) > 0 || r.nothing())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "export", "", "compare with this `file` of the gateway's transactions")
	flags.StringArrayVar(&columns, "column", nil, "what a column of the export is called, as `FIELD=NAME`; repeat it")
	flags.StringArrayVar(&statuses, "status", nil, "count only transactions of this `status`; repeat it")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// paymentComparer holds payments against transactions.
type paymentComparer struct {
	export *exportReader // nil: there is none
	refs   map[string][]*transaction
	ids    map[string]bool // of transactions that payments have
	paymentReport
}

// load reads an export, if there is one.
func (c *paymentComparer) load(file string, columns, statuses []string) error {
	switch {
	case file == "" && (columns != nil || statuses != nil):
		return usage("--column and --status are about an --export")
	case file == "":
		return nil
	}
	c.export = &exportReader{columns: map[string]string{}, statuses: statuses}
	for _, text := range columns {
		field, name, ok := strings.Cut(text, "=")
		if !ok || name == "" || !slices.Contains(transactionFields, field) {
			return usage("--column %q isn't FIELD=NAME with one of %s", text, strings.Join(transactionFields, ", "))
		}
		c.export.columns[field] = name
	}
	f, err := os.Open(file)
	if err != nil {
		return usage("--export: %w", err)
	}
	defer f.Close()
	if err := c.export.read(f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c.refs, c.Transactions = c.export.byReference(), len(c.export.found)
	return nil
}

// compare compares all payments that a query selects.
func (c *paymentComparer) compare(ctx context.Context, cmd *cobra.Command, recs client.Records, q store.Query) error {
	_, err := eachFound(ctx, recs, q, 0, warner(cmd), func(rec *semel.Record) error {
		c.payment(rec)
		return nil
	})
	return err
}

// payment compares one record.
func (c *paymentComparer) payment(rec *semel.Record) {
	id := rec.Attributes[store.AttributeTransactionID]
	charged := rec.State == semel.Completed || rec.Held || slices.ContainsFunc(rec.Effects, func(ef store.EffectRecord) bool { return ef.State == store.EffectConfirmed })
	named := c.refs[rec.ID.Key]
	if charged || id != "" {
		c.Payments++
	}
	if c.ids == nil {
		c.ids = map[string]bool{}
	}
	switch own := c.transaction(id); {
	case id == "" && charged:
		t := &transaction{}
		if len(named) > 0 { // the export knows more than the record
			t, named = named[0], named[1:]
			t.payments++
		}
		c.find(noTransactionID, t, rec)
	case id == "":
	case c.ids[id]:
		c.find(sharedCharge, &transaction{ID: id}, rec)
	case c.export != nil && own == nil:
		c.find(noTransaction, &transaction{ID: id}, rec)
	case own != nil:
		own.payments++
		differs := func(attribute, there string) bool {
			here := rec.Attributes[attribute]
			return here != "" && there != "" && here != there
		}
		if differs(commerce.AttributeAmount, own.Amount) || differs(commerce.AttributeCurrency, own.Currency) {
			c.find(amountDiscrepant, own, rec)
		}
	}
	if id != "" {
		c.ids[id] = true
	}
	for _, t := range named {
		if t.ID == id {
			continue
		}
		kind := chargedTwice
		if !charged && id == "" {
			kind = noPayment // such as one that was refused
		}
		t.payments++
		c.find(kind, t, rec)
	}
}

// transaction is a transaction of the export, or nil.
func (c *paymentComparer) transaction(id string) *transaction {
	if c.export == nil {
		return nil
	}
	return c.export.found[id]
}

func (c *paymentComparer) find(kind discrepancy, t *transaction, rec *semel.Record) {
	f := paymentFinding{Kind: kind, transaction: *t}
	if rec != nil {
		f.Record, f.Key, f.State = rec.ID.Encode(), rec.ID.Key, stateOf(rec)
	}
	c.Findings = append(c.Findings, f)
}

// report is what was found, when all payments have been compared.
func (c *paymentComparer) report() *paymentReport {
	if c.export != nil {
		for _, id := range slices.Sorted(maps.Keys(c.export.found)) {
			if t := c.export.found[id]; t.payments == 0 {
				c.find(noPayment, t, nil)
			}
		}
	}
	if c.Findings == nil {
		c.Findings = []paymentFinding{}
	}
	return &c.paymentReport
}

func printPayments(out io.Writer, r *paymentReport) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, f := range r.Findings {
		key := f.Key
		if key == "" {
			key = f.Reference
		}
		fmt.Fprintf(w, "BAD   %s\t%s\t%s %s\t%s\t%s\t%s\n", f.Kind, printable(f.ID), printable(f.Amount), printable(f.Currency), printable(key), printable(f.State), discrepancyMeans[f.Kind])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verdict := "good"
	if r.nothing() {
		_, err := fmt.Fprintln(out, "      nothing was compared: no payment matches, and no transaction was exported. Is it the right store and operation?")
		return err
	}
	if len(r.Findings) > 0 {
		verdict = "     "
	}
	_, err := fmt.Fprintf(out, "%s  %d payments and %d transactions were compared; %d findings\n", verdict, r.Payments, r.Transactions, len(r.Findings))
	return err
}
