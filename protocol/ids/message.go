package ids

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
)

// MessageOperation is the operation of the first level of deduplication: one message
// brings one command, whatever is made of it the second time.
const MessageOperation = "ids.message"

// messageWindow is longer than any sender of messages goes on to repeat one.
const messageWindow = 7 * 24 * time.Hour

// messageOperation: a message may be worked on again when nobody knows what became of
// it, because its command is deduplicated by what it means.
func messageOperation() semel.Operation {
	return semel.Operation{
		Name: MessageOperation, Window: messageWindow, OnAbandoned: semel.RetryAbandoned, OnFailure: semel.RetryFailure,
	}
}

// messageKey names a message: an id is unique for one number only. With the length no
// two pairs have one name, and what would be too long for a key is its digest.
func messageKey(t Trace) string {
	phone, id := t[TracePhoneNumberID], t[TraceMessageID]
	key := fmt.Sprintf("%d:%s/%s", len(phone), phone, id)
	if len(key) > semel.MaxKeyLen {
		sum := sha256.Sum256([]byte(key))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}

// deliverMessage delivers a command that a message brought. The record of the message
// names that of the command. A message that is seen again with another command is a
// conflict: whoever reads commands out of messages does not always read the same.
func (g *Gateway) deliverMessage(ctx context.Context, caller Caller, d *Derivation) (*Response, error) {
	c := &d.Command
	call := semel.Call{
		Tenant: c.TenantID, Principal: caller.Principal, Operation: MessageOperation, Fingerprint: d.Fingerprint, Door: Door,
		Key:        messageKey(c.Trace),
		Attributes: semel.Attributes{semel.AttributeCommandID: c.CommandID, "operation": c.Intent.Name()},
	}
	var r *Response
	var failed error
	ans, err := g.engine.Do(ctx, call, func(ctx context.Context, _ semel.Execution) (semel.Result, error) {
		// A crash in here leaves a message that may be worked on again, and a command
		// that is settled by its own policy.
		if r, failed = g.execute(ctx, caller, d); failed != nil {
			return semel.Result{}, semel.Aborted(failed)
		}
		return semel.Result{Data: []byte(r.StatusID)}, nil
	})
	switch {
	case failed != nil:
		return nil, failed
	case ans.Decision == semel.Execute && err == nil:
		return r, nil
	case ans.Decision == semel.Execute && r != nil:
		return r, nil // the command has its answer; only that the message has one is not recorded
	case ans.Decision == semel.Conflict:
		return conflict(c, "the message brought another command before"), nil
	case err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeInFlight}):
		return nil, err
	}
	// The message was seen, so the command was: it is asked what became of it. One
	// that has still to be confirmed, or may run again, goes its usual way.
	return g.execute(ctx, caller, d)
}
