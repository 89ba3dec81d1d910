package payments

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
)

// Transaction is one line of a gateway's export.
type Transaction struct {
	ID        string `json:"transaction_id,omitempty"`
	Reference string `json:"reference,omitempty"`
	Amount    string `json:"amount,omitempty"`
	Currency  string `json:"currency,omitempty"`
	Status    string `json:"status,omitempty"`

	payments int // how many payments have it
}

// set sets a field by its name.
func (t *Transaction) set(field, value string) {
	switch field {
	case "transaction_id":
		t.ID = value
	case "reference":
		t.Reference = value
	case "amount":
		// An amount written with a point has all the digits of its currency.
		t.Amount = strings.Replace(value, ".", "", 1)
	case "currency":
		t.Currency = strings.ToUpper(value)
	case "status":
		t.Status = value
	}
}

// Fields are the names of a transaction's fields, and of an export's columns.
var Fields = []string{"transaction_id", "reference", "amount", "currency", "status"}

// Bounds of an export, which is held in memory.
const (
	maxTransactions    = 1_000_000
	maxTransactionLine = 1 << 20
)

// Export is a gateway's list of transactions.
type Export struct {
	// Columns has the names of columns that differ from their fields' names.
	Columns map[string]string
	// Statuses selects transactions by status; nil selects all.
	Statuses []string

	found map[string]*Transaction // by id
}

// Read reads an export: CSV with a header line, or one JSON object per line. The last line of a
// transaction counts.
func (e *Export) Read(r io.Reader) error {
	e.found = map[string]*Transaction{}
	in := bufio.NewReaderSize(r, maxTransactionLine)
	if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
		_, _ = in.Discard(3)
	}
	if first, _ := in.Peek(1); string(first) == "{" {
		return e.readJSON(in)
	}
	return e.readCSV(in)
}

// add adds one transaction.
func (e *Export) add(line int, t *Transaction) error {
	delete(e.found, t.ID)
	switch {
	case t.ID == "":
		return fmt.Errorf("line %d has no %s", line, e.column("transaction_id"))
	case e.Statuses != nil && !slices.Contains(e.Statuses, t.Status):
		return nil
	case len(e.found) == maxTransactions:
		return fmt.Errorf("there are more than %d transactions: export a shorter time, and select its payments by after: and before: of that time", maxTransactions)
	}
	e.found[t.ID] = t
	return nil
}

// column returns the name of a field's column.
func (e *Export) column(field string) string {
	if name, ok := e.Columns[field]; ok {
		return name
	}
	return field
}

func (e *Export) readCSV(r io.Reader) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return fmt.Errorf("the export has no line with the names of its columns: %w", err)
	}
	places := map[int]string{}
	for _, field := range Fields {
		name := e.column(field)
		i := slices.Index(head, name)
		switch {
		case i >= 0 && slices.Contains(head[i+1:], name):
			return fmt.Errorf("two columns are called %q", name)
		case i >= 0:
			places[i] = field
		case field == "transaction_id" || name != field:
			return fmt.Errorf("no column is called %q: name it with --column %s=NAME", name, field)
		}
	}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := in.FieldPos(0)
		t := &Transaction{}
		for i, field := range places {
			t.set(field, strings.Clone(row[i]))
		}
		if err := e.add(line, t); err != nil {
			return err
		}
	}
}

func (e *Export) readJSON(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxTransactionLine)
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		text, err := canon.Canonicalize(lines.Bytes(), canon.Exact) // no name twice, and numbers unchanged
		var members map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(text, &members)
		}
		if err != nil {
			return fmt.Errorf("line %d isn't a JSON object: %w", n, err)
		}
		t := &Transaction{}
		for _, field := range Fields {
			raw := members[e.column(field)]
			if value, ok := jsonscan.Text(raw); ok {
				t.set(field, value)
			} else if len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') {
				t.set(field, string(raw))
			}
		}
		if err := e.add(n, t); err != nil {
			return err
		}
	}
	return lines.Err()
}

// byReference returns the transactions of each payment, in the order of their ids.
func (e *Export) byReference() map[string][]*Transaction {
	all := map[string][]*Transaction{}
	for _, id := range slices.Sorted(maps.Keys(e.found)) {
		if t := e.found[id]; t.Reference != "" {
			all[t.Reference] = append(all[t.Reference], t)
		}
	}
	return all
}
