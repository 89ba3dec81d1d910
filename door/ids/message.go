package ids

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// MessageOperation is the operation of the first level of deduplication: a message has one
// command, even if the mapper reads it as another one the second time.
const MessageOperation = "ids.message"

// messageWindow is longer than any sender repeats a message.
const messageWindow = 7 * 24 * time.Hour

// messageOperation: an abandoned message may be worked on again, because its command is
// deduplicated by its meaning.
var messageOperation = semel.Operation{
	Name: MessageOperation, Window: messageWindow, OnAbandoned: semel.RetryAbandoned, OnFailure: semel.RetryFailure,
}

// messageKey names a message: its id is unique only for one number. The length keeps two pairs
// from having the same name, and a digest replaces what would be too long for a key.
func messageKey(t Trace) string {
	phone, id := t[TracePhoneNumberID], t[TraceMessageID]
	key := fmt.Sprintf("%d:%s/%s", len(phone), phone, id)
	if len(key) > semel.MaxKeyLen {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key)))
	}
	return key
}

// deliverMessage delivers the command of a message, whose record names that of the command. If the
// message comes again, and its mapper reads it as another command, that is a conflict.
func (g *Gateway) deliverMessage(ctx context.Context, caller Caller, d *Derivation) (*Response, error) {
	c := &d.Command
	call := semel.Call{
		Tenant: c.TenantID, Principal: caller.Principal, Operation: MessageOperation, Fingerprint: d.Fingerprint, Door: Name,
		Key:        messageKey(c.Trace),
		Attributes: store.Attributes{semel.AttributeCommandID: c.CommandID, "operation": c.Intent.Name()},
	}
	var r *Response
	var failed error
	ans, err := g.engine.Do(ctx, call, func(ctx context.Context, _ semel.Execution) (semel.Result, error) {
		// A crash in here, or an error that doesn't prove that nothing was executed, leaves a
		// message that may be worked on again, with the same command. Its own policy settles that.
		if r, failed = g.execute(ctx, caller, d); failed == nil {
			return semel.Result{Data: []byte(r.StatusID)}, nil
		}
		if e, ok := errors.AsType[*semel.Error](failed); ok && e.Code != semel.CodeUnknown && e.Code != semel.CodeLeaseLost {
			return semel.Result{}, semel.Aborted(failed)
		}
		return semel.Result{}, semel.Abandoned(failed)
	})
	switch {
	case failed != nil:
		return nil, failed
	case ans.Decision == semel.Execute && r != nil:
		return r, nil // the command has its answer, even if the message's record doesn't say so
	case ans.Decision == semel.Conflict:
		return conflict(c, &ans, "the message brought another command before"), nil
	case err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeInFlight}):
		return nil, err
	}
	// The message came before, and so did the command: this finds its outcome. If the
	// command waits for a confirmation, or may run again, it is handled as usual.
	return g.execute(ctx, caller, d)
}
