package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// batchBeginning is a beginning with the operation that is otherwise in the path.
type batchBeginning struct {
	Operation   string          `json:"operation" minLength:"1" maxLength:"256"`
	Key         string          `json:"key" minLength:"1" maxLength:"1024"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadHash string          `json:"payload_hash,omitempty" maxLength:"128"`
	FirstSent   time.Time       `json:"first_sent,omitzero"`
}

// batchEnd is a completion with the execution that is otherwise in the path.
type batchEnd struct {
	Execution   string          `json:"execution" minLength:"1" maxLength:"8192"`
	Result      json.RawMessage `json:"result,omitempty"`
	ResultBytes *string         `json:"result_base64,omitempty"`
}

// batchItem is one of the two.
type batchItem struct {
	Begin    *batchBeginning `json:"begin,omitempty"`
	Complete *batchEnd       `json:"complete,omitempty"`
}

// batch is many items.
type batch struct {
	Items []batchItem `json:"items" minItems:"1" maxItems:"500" nullable:"false"`
}

type batchInput struct {
	Holder string `header:"Semel-Holder" maxLength:"240" doc:"Names who executes, a random name for each batch; see begin."`
	Body   batch
}

// batchAnswer is what the item would have been answered with alone.
type batchAnswer struct {
	Status int `json:"status" doc:"The HTTP status." minimum:"200" maximum:"599"`
	Body   any `json:"body" doc:"The body: of begin, of complete, or a problem."`
}

// batchReply answers the items in their order.
type batchReply struct {
	Items []batchAnswer `json:"items" nullable:"false"`
}

type batchOutput struct{ Body batchReply }

func (b *builder) batch() {
	route(b, huma.Operation{
		OperationID: "batch", Method: http.MethodPost, Path: "/v1/batch", Tags: []string{"executions"}, MaxBodyBytes: b.api.opts.MaxBatchBody,
		Summary: "Begin and complete many executions in one request",
		Description: "Items run at the same time, in no promised order, and each is answered on its own, in the order of the request. " +
			"Repeating a batch is as harmless as repeating its items.",
	}, NoRole, nil, runBatch)
}

func runBatch(x *exchange, in *batchInput) (*batchOutput, error) {
	out := &batchOutput{}
	out.Body.Items = make([]batchAnswer, len(in.Body.Items))
	var all sync.WaitGroup
	for i := range in.Body.Items {
		all.Go(func() {
			holder := in.Holder
			if holder != "" {
				holder += "." + strconv.Itoa(i)
			}
			status, body, err := x.batchItem(&in.Body.Items[i], holder, "body.items["+strconv.Itoa(i)+"]")
			if err != nil {
				p := x.api.problemOf(err)
				status, body = p.Status, p
			}
			out.Body.Items[i] = batchAnswer{status, body}
		})
	}
	all.Wait()
	return out, nil
}

func (x *exchange) batchItem(item *batchItem, holder, path string) (status int, body any, err error) {
	switch {
	case (item.Begin == nil) == (item.Complete == nil):
		return 0, nil, x.api.invalid(path, "an item has begin or complete, and not both")
	case item.Begin != nil:
		in := item.Begin
		body := &beginning{Key: in.Key, Payload: in.Payload, PayloadHash: in.PayloadHash, FirstSent: in.FirstSent}
		return flat(x.begin(in.Operation, holder, body, path+".begin", 0))
	}
	reply, err := x.complete(item.Complete.Execution, given{item.Complete.Result, item.Complete.ResultBytes}, path+".complete")
	return http.StatusOK, reply, err
}

// flat lets begin be returned as it is.
func flat(status int, reply *begun, err error) (int, any, error) { return status, reply, err }
