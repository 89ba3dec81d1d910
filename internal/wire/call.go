package wire

import (
	"encoding/json"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Beginning is the body of a request to begin a call.
type Beginning struct {
	Key         string           `json:"key,omitempty" maxLength:"1024" doc:"The key, if not in the header." example:"order-42"`
	Payload     json.RawMessage  `json:"payload,omitempty" doc:"What the call is about. Its fingerprint is kept, to refuse the key with another payload, and the payload itself only where the operation has keep_payload."`
	PayloadHash string           `json:"payload_hash,omitempty" maxLength:"128" doc:"The fingerprint itself, instead of the payload."`
	Sequence    uint64           `json:"sequence,omitempty" doc:"The number of this call among those of its key, from 1, for a sequenced operation."`
	FirstSent   time.Time        `json:"first_sent,omitzero" doc:"When the caller first sent this call; see refuse_late of the operation."`
	Attributes  store.Attributes `json:"attributes,omitempty" nullable:"false" doc:"Facts that are kept with a call that is new, such as a command_id or a correlation_id. They aren't part of its identity."`
	Confirm     string           `json:"confirm,omitempty" maxLength:"256" doc:"The confirmation token."`
	StepUp      string           `json:"step_up,omitempty" maxLength:"1024" doc:"The further proof that a confirmation may need."`
}

// Begun is the answer to a beginning.
type Begun struct {
	Decision   semel.Decision `json:"decision" enum:"execute,replay"`
	Execution  string         `json:"execution,omitempty" doc:"Names the execution that the caller now holds."`
	Fence      int64          `json:"fence,omitempty" doc:"Pass it to resources that can refuse an older holder."`
	Attempt    int            `json:"attempt,omitempty"`
	LeaseMS    int64          `json:"lease_ms,omitempty" doc:"How long the holder may be silent. Renew at a third of it."`
	LeaseUntil store.Instant  `json:"lease_until,omitzero" format:"date-time"`
	// OnAbandoned is absent in a replay.
	OnAbandoned semel.AfterAbandon `json:"on_abandoned,omitempty" enum:"hold,retry" doc:"What becomes of the call if its holder goes away or abandons it: retry if all its effects are in the ledger or the operation says so, unless one was started and has no result."`
	// Financial is absent in a replay.
	Financial bool   `json:"financial,omitempty" doc:"The operation moves money: fail the execution if its work failed, and abort it only with proof that nothing was done."`
	Record    Record `json:"record"`
}

// Renewed is the answer to a renewal.
type Renewed struct {
	LeaseMS    int64         `json:"lease_ms"`
	LeaseUntil store.Instant `json:"lease_until" format:"date-time"`
}

// RecordBody is an answer that consists of a record.
type RecordBody struct {
	Record Record `json:"record"`
}

// Intent announces a call to a provider.
type Intent struct {
	Name      string `json:"name" minLength:"1" maxLength:"256" doc:"Unique within the call." example:"charge"`
	NotCalled bool   `json:"not_called,omitempty" doc:"The caller asked before, got no answer, and made no call."`
}

// Finding says what happened to an effect.
type Finding struct {
	Name  string            `json:"name" minLength:"1" maxLength:"256"`
	State store.EffectState `json:"state" enum:"confirmed,refuted" doc:"Refuted without error: it did not happen and may be started again. With error: the provider refused for good."`
	Result
	Error *Failure `json:"error,omitempty"`
}

// Completing is the body of a request to complete an execution.
type Completing struct {
	Result
	Messages []Sending `json:"messages,omitempty" maxItems:"100" nullable:"false" doc:"What the call sends. They become durable together with the result, and are delivered at least once."`
}

// Sending is a message that a call sends.
type Sending struct {
	Name         string          `json:"name" minLength:"1" maxLength:"256" doc:"Unique within the call."`
	Destination  string          `json:"destination" minLength:"1" maxLength:"256"`
	ContentType  string          `json:"content_type,omitempty" maxLength:"256"`
	Payload      json.RawMessage `json:"payload,omitempty"`
	PayloadBytes *string         `json:"payload_base64,omitempty" doc:"The same as bytes, in base64."`
	Order        string          `json:"order,omitempty" maxLength:"256" doc:"Messages of one destination with the same word are delivered in order."`
}

// Refusing is the body of a request to end an attempt as rejected or failed.
type Refusing struct {
	Error Failure `json:"error"`
	Result
}

// Aborting is the body of a request to end an attempt that had no effect.
type Aborting struct {
	Error *Failure `json:"error,omitempty"`
}

// Reasoned is the body of a request that needs a reason.
type Reasoned struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"For people."`
}

// MaxBatch is how many items a batch may have.
const MaxBatch = 500

// Batch is a request with many items.
type Batch struct {
	Items []BatchItem `json:"items" minItems:"1" maxItems:"500" nullable:"false"`
}

// BatchItem is a beginning or a completion.
type BatchItem struct {
	Begin    *BatchBeginning `json:"begin,omitempty"`
	Complete *BatchEnd       `json:"complete,omitempty"`
}

// BatchBeginning is a beginning with the operation, which is otherwise in the path. The key is
// required, because it can't come in a header here.
type BatchBeginning struct {
	Operation string `json:"operation" minLength:"1" maxLength:"256"`
	Key       string `json:"key" minLength:"1" maxLength:"1024"`
	Beginning
}

// BatchEnd is a completion with the execution, which is otherwise in the path.
type BatchEnd struct {
	Execution string `json:"execution" minLength:"1" maxLength:"8192"`
	Result
}

// BatchReply has the answers in the order of the items.
type BatchReply struct {
	Items []BatchAnswer `json:"items" nullable:"false"`
}

// BatchAnswer is the answer that the item would have got on its own.
type BatchAnswer struct {
	Status int             `json:"status" doc:"The HTTP status." minimum:"200" maximum:"599"`
	Body   json.RawMessage `json:"body" doc:"The body: of begin, of complete, or a problem."`
}
