package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/payments"
	"github.com/semelhq/semel/store"
)

func reconcileCommand() *cobra.Command {
	from := newRecordsFrom()
	cmd := group(&cobra.Command{
		Use:   "reconcile",
		Short: "Compare records with a provider's data",
	}, newReconcilePayments(from))
	from.source.add(cmd.PersistentFlags())
	return cmd
}

func newReconcilePayments(from *recordsFrom) *cobra.Command {
	var file string
	var columns, statuses []string
	cmd := &cobra.Command{
		Use:   "payments [QUALIFIER...]",
		Short: "Find payments without a transaction at the gateway, and the reverse",
		Long: `Find payments without the id of a transaction at the gateway. With --export, also
compare payments with the gateway's own list: transactions without a payment, payments
without their transaction, payments that were charged twice, and amounts that differ.
Nothing is changed. The exit code is 1 if there are findings, or nothing to compare.

Payments are the records of the operation ` + commerce.PaymentOperation + `, or of the one in a
qualifier; running and refused ones don't count. A payment's transaction is its
attribute ` + store.AttributeTransactionID + `. All qualifiers must apply:
` + qualifiers + `

The export is CSV with a head line, or a JSON object in each line. It has the columns
transaction_id, and reference (the payment's key), amount, currency and status if the
gateway has them. An amount is in the smallest unit, or with a point and all digits of
its currency. The last line of a transaction counts. Select payments of the same time
as the export, with after: and before:.

The kinds are no_transaction_id, no_transaction, no_payment, charged_twice,
shared_transaction and amount_differs. The JSON has payments and transactions, which
count what was compared, and findings (kind, transaction_id, reference, amount,
currency, status, record, idempotency_key, state).`,
		Example: `  semel reconcile payments --store pebble:./semel-data
  semel reconcile payments --context prod --status succeeded after:2026-01-01 before:2026-01-02 \
    --export stripe.csv --column transaction_id=id --column reference='reference (metadata)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := parseQuery(args)
			if err != nil {
				return err
			}
			if q.Operation == "" && q.Digest == "" {
				q.Operation = commerce.PaymentOperation
			}
			export, err := readExport(file, columns, statuses)
			if err != nil {
				return err
			}
			r, err := comparePayments(cmd, from, q, export)
			if err != nil {
				return err
			}
			return printReport(cmd, r, func(w io.Writer) error { return printPayments(w, r) }, len(r.Findings) > 0 || r.Empty())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "export", "", "compare with this `file` of the gateway's transactions")
	flags.StringArrayVar(&columns, "column", nil, "name of a column of the export, as `FIELD=NAME`; may be repeated")
	flags.StringArrayVar(&statuses, "status", nil, "count only transactions of this `status`; may be repeated")
	return jsonFlag(cmd)
}

// comparePayments compares the payments that a query selects.
func comparePayments(cmd *cobra.Command, from *recordsFrom, q store.Query, export *payments.Export) (*payments.Report, error) {
	c := payments.NewComparer(export, stateOf)
	err := from.look(cmd, func(ctx context.Context, recs client.Records) error {
		_, err := lookup.Each(ctx, recs, q, 0, warner(cmd), func(rec *semel.Record) error {
			c.Add(rec)
			return nil
		})
		return err
	})
	return c.Report(), err
}

// readExport reads the file of an export; without a file there is none.
func readExport(file string, columns, statuses []string) (*payments.Export, error) {
	if file == "" {
		if columns != nil || statuses != nil {
			return nil, usage("--column and --status need --export")
		}
		return nil, nil
	}
	export := &payments.Export{Columns: map[string]string{}, Statuses: statuses}
	for _, text := range columns {
		field, name, ok := strings.Cut(text, "=")
		if !ok || name == "" || !slices.Contains(payments.Fields, field) {
			return nil, usage("--column %q isn't FIELD=NAME with one of %s", text, strings.Join(payments.Fields, ", "))
		}
		export.Columns[field] = name
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usage("--export: %w", err)
	}
	defer f.Close()
	if err := export.Read(f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return export, nil
}

func printPayments(out io.Writer, r *payments.Report) error {
	w := newTable(out)
	for _, f := range r.Findings {
		fmt.Fprintf(w, "BAD   %s\t%s\t%s %s\t%s\t%s\t%s\n", f.Kind, printable(f.ID), printable(f.Amount), printable(f.Currency), printable(cmp.Or(f.Key, f.Reference)), printable(f.State), f.Kind.Meaning())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.Empty() {
		_, err := fmt.Fprintln(out, "      nothing was compared: no payment matches, and the export has no transaction. Is it the right store and operation?")
		return err
	}
	verdict := "good"
	if len(r.Findings) > 0 {
		verdict = "     "
	}
	_, err := fmt.Fprintf(out, "%s  %d payments and %d transactions were compared; %d findings\n", verdict, r.Payments, r.Transactions, len(r.Findings))
	return err
}
