package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

// TestRecordsGetShowsLaterFacts prints a record that has everything that most don't.
func TestRecordsGetShowsLaterFacts(t *testing.T) {
	rec := &semel.Record{
		ID: semel.ID{Tenant: "acme", Operation: "order", Key: "o1"}, State: semel.Completed, Attempt: 1, Fence: 1, Holder: "node", Principal: "shop",
		Attributes:   store.Attributes{"via": "whatsapp\x1b[31m", "command_id": "c-1"},
		Confirmation: &store.Confirmation{Principal: "shop", Tries: 2, ConfirmedAt: 1e15},
		Outbox: []semel.Message{
			{ID: "msg_1", Name: "mail", Destination: "billing", State: store.MessageParked, Tries: 3, Failure: &store.Failure{Code: "too_many_tries", Message: "status 500"}},
			{ID: "msg_2", Name: "event", Destination: "bus", State: store.MessageDelivered},
		},
		Compensation: &store.Compensation{
			Operation: "undo", Principal: "op", Key: "k", State: store.CompensationFailed, Reason: "the wrong address", StartedAt: 1e15, SettledAt: 2e15,
			Failure: &store.Failure{Code: "refused", Message: "sent already"},
		},
	}
	var out bytes.Buffer
	if err := printRecord(&out, rec); err != nil {
		t.Fatal(err)
	}
	golden(t, "records-get.txt", out.String())
}

// unsearched are records that can be looked up, but whose search fails.
type unsearched struct {
	client.Records
	err error
}

func (u unsearched) Search(context.Context, store.Query) (store.Page, error) {
	return store.Page{}, u.err
}

// TestRecordsGetWithoutASearch: that another caller has no such record is only known after a search.
// Who may not search is told about their own.
func TestRecordsGetWithoutASearch(t *testing.T) {
	e := inMemory(t)
	for code, exit := range map[semel.Code]int{
		semel.CodeForbidden:        ExitNotFound,
		door.CodeUnauthorized:      ExitNotFound,
		semel.CodeStoreUnavailable: ExitUnavailable,
		semel.CodeClosed:           ExitUnavailable,
		semel.CodeUnsupported:      ExitCheck,
	} {
		failed := &semel.Error{Code: code, Message: "no search"}
		_, err := inProcess(t, t.Context(), unsearched{e, failed}, strings.NewReader(""), io.Discard, "get", "--operation", "charge", "--key", "none")
		if err == nil || exitOf(err) != exit || errors.Is(err, semel.ErrNotFound) != (exit == ExitNotFound) || errors.Is(err, failed) == (exit == ExitNotFound) {
			t.Errorf("after %s: %v", code, err)
		}
	}
}
