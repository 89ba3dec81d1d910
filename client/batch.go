package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
)

// MaxBatch is how many items a batch may have.
const MaxBatch = wire.MaxBatch

// BatchItem is one beginning or one completion; set exactly one member.
type BatchItem struct {
	Begin    *semel.Call
	Complete *Completion
}

// Completion ends an execution with its result.
type Completion struct {
	Execution string
	Result    semel.Result
}

// BatchResult is the result of one item.
type BatchResult struct {
	// Begun is the answer to a beginning; see [Client.Begin].
	Begun Begun
	// Record is the record of the completed call.
	Record *semel.Record
	// Err says why the item has neither.
	Err error
}

// Batch begins and completes up to [MaxBatch] executions in one request. The service runs the
// items concurrently; the results come in the items' order. Calls don't wait for outcomes, and
// no two may have the same operation and key.
//
// The error is for the batch as a whole: if its answer was lost, every item may have been done
// or not. Repeat the items to find out.
func (c *Client) Batch(ctx context.Context, items []BatchItem) ([]BatchResult, error) {
	if len(items) == 0 {
		return nil, nil
	}
	body, err := batchOf(items)
	if err != nil {
		return nil, err
	}
	since := time.Now()
	v, r, err := call[wire.BatchReply](ctx, c, &request{
		method: http.MethodPost, to: c.calls, path: "/v1/batch", body: body, repeatable: true, lost: semel.CodeUnknown,
		header: http.Header{holderHeader: {newHolder(&semel.Call{})}},
	})
	if err != nil {
		return nil, err
	}
	if len(v.Items) != len(items) {
		return nil, r.invalid("it has another number of items")
	}
	results := make([]BatchResult, len(items))
	for i := range items {
		results[i] = c.batchResult(ctx, &items[i], &v.Items[i], since)
	}
	return results, nil
}

func batchOf(items []BatchItem) (*wire.Batch, error) {
	invalid := func(i int, what string) error {
		return &semel.Error{Code: semel.CodeInvalidCall, Message: fmt.Sprintf("item %d of the batch %s", i, what)}
	}
	if len(items) > MaxBatch {
		return nil, invalid(MaxBatch, fmt.Sprintf("is one more than the %d there may be", MaxBatch))
	}
	seen := map[[2]string]bool{}
	b := &wire.Batch{}
	for i, item := range items {
		switch {
		case (item.Begin == nil) == (item.Complete == nil):
			return nil, invalid(i, "has Begin and Complete, or neither")
		case item.Begin != nil:
			// All beginnings of one request share a holder, who would get the same right twice.
			name := [2]string{item.Begin.Operation, item.Begin.Key}
			if seen[name] {
				return nil, invalid(i, "is the same call as another")
			}
			seen[name] = true
			begin := beginningOf(item.Begin)
			begin.Key = "" // the item itself has it
			b.Items = append(b.Items, wire.BatchItem{Begin: &wire.BatchBeginning{Operation: item.Begin.Operation, Key: item.Begin.Key, Beginning: *begin}})
		case item.Complete.Result.Tombstone:
			return nil, errTombstone()
		default:
			b.Items = append(b.Items, wire.BatchItem{Complete: &wire.BatchEnd{Execution: item.Complete.Execution, Result: sentResult(item.Complete.Result)}})
		}
	}
	return b, nil
}

func (c *Client) batchResult(ctx context.Context, item *BatchItem, answer *wire.BatchAnswer, since time.Time) (res BatchResult) {
	r := &reply{status: answer.Status, body: answer.Body, lost: semel.CodeUnknown}
	if r.status >= 300 && !r.refused() {
		res.Err = r.invalid(invalidProblem)
		return res
	}
	if item.Begin == nil {
		if r.problem != nil {
			res.Err = r.refusal()
			return res
		}
		res.Record, res.Err = recordIn(r)
		return res
	}
	r.lost = lostBeginning
	if res.Begun, res.Err = c.begun(item.Begin, r, since); res.Err == nil && res.Begun.Decision == semel.Execute {
		res.Err = c.accept(ctx, item.Begin, &res.Begun)
	}
	return res
}
