package api

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"

	"github.com/semelhq/semel/internal/wire"
)

type batchInput struct {
	Holder string `header:"Semel-Holder" maxLength:"240" doc:"The holder: a random name for each batch; see begin."`
	Body   wire.Batch
}

func (b *builder) batch() {
	op := about("batch", "executions", "POST /v1/batch", "Begin and complete many executions in one request",
		"Items run at the same time, in no promised order, and each is answered on its own, in the order of the request. "+
			"Repeating a batch is as harmless as repeating its items.")
	op.Metadata, op.MaxBodyBytes = delivers, b.api.opts.bounds.batch
	route(b, op, NoRole, nil, runBatch)
}

func runBatch(x *exchange, in *batchInput) (*reply[wire.BatchReply], error) {
	out := &reply[wire.BatchReply]{}
	out.Body.Items = make([]wire.BatchAnswer, len(in.Body.Items))
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
			var text bytes.Buffer
			if err := strictJSON.Marshal(&text, body); err != nil {
				panic(err) // a record or a problem always has a JSON form
			}
			out.Body.Items[i] = wire.BatchAnswer{Status: status, Body: text.Bytes()}
		})
	}
	all.Wait()
	return out, nil
}

func (x *exchange) batchItem(item *wire.BatchItem, holder, path string) (status int, body any, err error) {
	switch {
	case (item.Begin == nil) == (item.Complete == nil):
		return 0, nil, x.refused(x.api.invalid(path, "an item has either begin or complete"))
	case item.Begin != nil:
		in := item.Begin
		in.Beginning.Key = in.Key
		return flat(x.begin(in.Operation, holder, &in.Beginning, path+".begin", 0))
	}
	f, err := x.complete(&wire.Completing{Result: item.Complete.Result}, path+".complete")
	if err != nil {
		return 0, nil, err
	}
	reply, err := x.end(item.Complete.Execution, f)
	return http.StatusOK, reply, err
}

func flat(status int, reply *wire.Begun, err error) (int, any, error) { return status, reply, err }
