package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/payments"
	"github.com/semelhq/semel/internal/rig/clause"
)

// paymentsDir makes a store with payments of the orders, each with the transaction that is
// given, or an error of the gateway. Their keys are returned by order.
func paymentsDir(t *testing.T, orders map[string]any) (store string, keys map[string]string) {
	t.Helper()
	dir, e, leave := newStore(t, nil)
	p, err := commerce.NewPayments(e, commerce.PaymentOptions{Charge: func(_ context.Context, c commerce.Charge) (commerce.Charged, error) {
		if err, bad := orders[c.Order].(error); bad {
			return commerce.Charged{}, err
		}
		return commerce.Charged{TransactionID: orders[c.Order].(string)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	keys = map[string]string{}
	at := time.Now().Add(-time.Minute)
	for order := range orders {
		pay := commerce.Pay{Buyer: commerce.Buyer{Tenant: "acme", User: "alice"}, Order: order, Amount: 2999, Currency: "USD", IntentAt: at}
		_, ans, _ := p.Pay(t.Context(), pay)
		keys[order] = ans.Record.ID.Key
	}
	leave()
	return "pebble:" + dir, keys
}

// reconciled runs the command, and returns its findings as KIND TRANSACTION ORDER, sorted.
func reconciled(t *testing.T, keys map[string]string, wantCode int, args ...string) []string {
	t.Helper()
	code, out, errs := semelWith(t, "", append([]string{"reconcile", "payments", "--json"}, args...)...)
	var report payments.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != wantCode {
		t.Fatalf("exit %d, %s%s: %v", code, out, errs, err)
	}
	found := []string{}
	for _, f := range report.Findings {
		order := "-"
		for o, key := range keys {
			if key == f.Key && f.Record != "" && f.State != "" {
				order = o
			}
		}
		found = append(found, fmt.Sprintf("%s %s %s", f.Kind, f.ID, order))
	}
	slices.Sort(found)
	return found
}

func export(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestReconcilePayments: payments without a transaction and transactions without a payment
// are found, and nothing else.
func TestReconcilePayments(t *testing.T) {
	clause.Proves(t, "MAP-PAY.3")
	store, keys := paymentsDir(t, map[string]any{
		"good": "tx_good", "gone": "tx_gone", "dear": "tx_dear", "twice": "tx_twice", "one": "tx_both", "two": "tx_both",
		"lost": errors.New("no answer"), "silent": errors.New("no answer"), "declined": semel.Rejected("declined", errors.New("no funds")), "ghost": semel.Rejected("declined", errors.New("no funds")),
	})
	if got, want := reconciled(t, keys, ExitCheck, "--store", store), []string{"no_transaction_id  lost", "no_transaction_id  silent", "shared_transaction tx_both"}; len(got) != 3 || !slices.Equal(got[:2], want[:2]) || !strings.HasPrefix(got[2], want[2]) {
		t.Errorf("without an export: %q, want %q", got, want)
	}
	rows := []struct{ id, key, amount, status string }{
		{"tx_good", keys["good"], "29.99", "succeeded"}, {"tx_dear", keys["dear"], "39.99", "succeeded"}, {"tx_twice", keys["twice"], "29.99", "succeeded"},
		{"tx_twice_2", keys["twice"], "29.99", "succeeded"}, {"tx_both", "", "29.99", "succeeded"}, {"tx_lost", keys["lost"], "29.99", "succeeded"},
		{"tx_ghost", keys["ghost"], "29.99", "succeeded"}, {"tx_stray", "", "5.00", "succeeded"}, {"tx_failed", "", "5.00", "failed"},
	}
	want := []string{
		"amount_differs tx_dear dear", "charged_twice tx_twice_2 twice", "no_payment tx_ghost ghost", "no_payment tx_stray -",
		"no_transaction tx_gone gone", "no_transaction_id  silent", "no_transaction_id tx_lost lost", "shared_transaction tx_both",
	}
	csv, lines := "\ufeffstatus,id,amount,Currency,meta (reference),fee\n", "\n"
	for _, r := range rows {
		csv += fmt.Sprintf("%s,%s,%s,usd,%s,1\n", r.status, r.id, r.amount, r.key)
		lines += fmt.Sprintf(`{"transaction_id":%q,"status":%q,"amount":%s,"currency":"usd","reference":%q,"card":{"last4":"4242"}}`+"\n\n", r.id, r.status, strings.Replace(r.amount, ".", "", 1), r.key)
	}
	lines = strings.TrimPrefix(lines, "\n")
	for name, args := range map[string][]string{
		"csv":    {"--export", export(t, "a.csv", csv), "--column", "transaction_id=id", "--column", "reference=meta (reference)", "--column", "currency=Currency"},
		"ndjson": {"--export", export(t, "a.json", lines)},
	} {
		got := reconciled(t, keys, ExitCheck, append(args, "--store", store, "--status", "succeeded")...)
		if len(got) != len(want) || !slices.Equal(got[:7], want[:7]) || !strings.HasPrefix(got[7], want[7]) {
			t.Errorf("%s: %q\nwant %q", name, got, want)
		}
		if all := reconciled(t, keys, ExitCheck, append(args, "--store", store)...); len(all) != len(want)+1 || !slices.Contains(all, "no_payment tx_failed -") {
			t.Errorf("%s, of all statuses: %q", name, all)
		}
	}
	code, out, _ := semelWith(t, "", "reconcile", "payments", "--store", store)
	if code != ExitCheck || !strings.Contains(out, "BAD   no_transaction_id") || !strings.Contains(out, keys["lost"]) || !strings.Contains(out, "8 payments and 0 transactions were compared; 3 findings") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestReconcileFindsNothing(t *testing.T) {
	store, keys := paymentsDir(t, map[string]any{"a": "tx_a", "b": "tx_b", "declined": semel.Rejected("declined", errors.New("no funds"))})
	file := export(t, "a.csv", "transaction_id,status\ntx_a,pending\ntx_b,succeeded\ntx_a,succeeded\n")
	if got := reconciled(t, keys, ExitOK, "--store", store, "--export", file, "--status", "succeeded", "tenant:acme"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := reconciled(t, keys, ExitCheck, "--store", store, "operation:other"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if code, out, _ := semelWith(t, "", "reconcile", "payments", "--store", store, "operation:other"); code != ExitCheck || !strings.Contains(out, "nothing was compared") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out, _ := semelWith(t, "", "reconcile", "payments", "--store", store); code != ExitOK || out != "good  2 payments and 0 transactions were compared; 0 findings\n" {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestReconcileRefuses(t *testing.T) {
	store, _ := paymentsDir(t, map[string]any{"a": "tx_a"})
	for text, want := range map[string]string{
		"":                                "no line with the names",
		"id,amount\n1,2\n":                `no column is called "transaction_id": name it with --column`,
		"transaction_id,transaction_id\n": "two columns",
		"transaction_id,amount\n,2\n":     "line 2 has no transaction_id",
		"transaction_id,amount\nx\n":      "wrong number of fields",
		"transaction_id\n\"x\n":           "extraneous",
		`{"transaction_id":"a"`:           "line 1 isn't a JSON object",
		`{"transaction_id":"a","transaction_id":"b"}`:      "line 1 isn't a JSON object",
		`{"Transaction_ID":"a"}`:                           "line 1 has no transaction_id",
		`{"transaction_id":["a"]}`:                         "line 1 has no transaction_id",
		`{"transaction_id":"a"}` + "\n[1]":                 "line 2 isn't a JSON object",
		`{"transaction_id":"` + strings.Repeat("a", 2<<20): "too long",
	} {
		code, _, errs := semelWith(t, "", "reconcile", "payments", "--store", store, "--export", export(t, "x", text))
		if code != ExitCheck || !strings.Contains(errs, want) {
			t.Errorf("%.60q: exit %d, %s, want %s", text, code, errs, want)
		}
	}
	for want, args := range map[string][]string{
		"no such file":     {"--export", "nowhere"},
		"isn't FIELD=NAME": {"--export", "x", "--column", "name=id"},
		"need --export":    {"--status", "ok"},
	} {
		if code, _, errs := semelWith(t, "", append([]string{"reconcile", "payments", "--store", store}, args...)...); code != ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}
