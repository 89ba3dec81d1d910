package api

import (
	"encoding/json"
	"time"

	"github.com/semelhq/semel"
)

// record is a record as it is shown: the fields of the core model, and what else
// is known.
type record struct {
	ID           string           `json:"id" doc:"Names the record in addresses. It is no secret and shows all that it names."`
	Tenant       string           `json:"tenant"`
	Principal    string           `json:"principal" doc:"The scope of the key; empty where the operation shares its keys within the tenant."`
	Door         string           `json:"door,omitempty" doc:"The door that the call came through: api, http and others."`
	Key          string           `json:"idempotency_key"`
	Operation    string           `json:"operation"`
	BoundTo      string           `json:"bound_to,omitempty" doc:"Digest of the credential that the call is bound to, where nobody verified its caller."`
	PayloadHash  string           `json:"payload_hash,omitempty" doc:"The fingerprint of the payload; absent if none is compared."`
	Status       string           `json:"status" enum:"processing,completed,failed"`
	Disposition  string           `json:"disposition,omitempty" enum:"completed,rejected,failed,aborted,abandoned" doc:"How the newest attempt ended."`
	Held         string           `json:"held,omitempty" doc:"Why nobody may run the call until it is settled."`
	Result       json.RawMessage  `json:"result,omitempty" doc:"What the call was completed with."`
	ResultBytes  *string          `json:"result_base64,omitempty" doc:"The same, where it is not compact JSON."`
	ResultKept   *bool            `json:"result_kept,omitempty" doc:"False: the call ran and its result was not kept whole."`
	Error        *failure         `json:"error,omitempty" doc:"Why the newest attempt failed."`
	Fence        int64            `json:"fence" doc:"Rises with every new holder."`
	Attempt      int              `json:"attempt" doc:"Counts the attempts, from 1."`
	Holder       string           `json:"holder,omitempty" doc:"The node that began the newest attempt."`
	CreatedAt    semel.Instant    `json:"created_at" format:"date-time"`
	UpdatedAt    semel.Instant    `json:"updated_at" format:"date-time"`
	StartedAt    semel.Instant    `json:"started_at" format:"date-time" doc:"When the newest attempt began."`
	EndedAt      semel.Instant    `json:"ended_at,omitzero" format:"date-time"`
	LeaseUntil   semel.Instant    `json:"lease_until,omitzero" format:"date-time" doc:"Until when the holder may be silent."`
	ExpiresAt    semel.Instant    `json:"expires_at,omitzero" format:"date-time" doc:"When the outcome is forgotten."`
	Attempts     []attempt        `json:"attempts" nullable:"false" doc:"The ended attempts that are kept, the oldest first, and the newest one."`
	Effects      []effect         `json:"effects" nullable:"false" doc:"The ledger of external calls."`
	Attributes   semel.Attributes `json:"attributes,omitempty" nullable:"false" doc:"What the first delivery said about the call."`
	Confirmation *confirmation    `json:"confirmation,omitempty" doc:"How the call was confirmed, or is to be."`
	Messages     []outgoing       `json:"messages,omitempty" nullable:"false" doc:"What the completed call sends."`
	Compensation *compensation    `json:"compensation,omitempty" doc:"The call that undoes this one."`
	Decisions    map[string]int   `json:"decisions" nullable:"false" doc:"What deliveries got, counted by the node that answers."`
	Since        time.Time        `json:"decisions_since" doc:"Since when decisions are counted."`
}

// failure is why an attempt failed, in words that may be shown.
type failure struct {
	Code    string `json:"code" required:"false" maxLength:"1024" doc:"The holder's own short word."`
	Message string `json:"message" required:"false" maxLength:"1024"`
}

// attempt is one attempt of a record.
type attempt struct {
	Number      int           `json:"number"`
	Fence       int64         `json:"fence"`
	Holder      string        `json:"holder,omitempty"`
	Principal   string        `json:"principal,omitempty"`
	Disposition string        `json:"disposition,omitempty" enum:"completed,rejected,failed,aborted,abandoned"`
	Error       *failure      `json:"error,omitempty"`
	StartedAt   semel.Instant `json:"started_at" format:"date-time"`
	EndedAt     semel.Instant `json:"ended_at,omitzero" format:"date-time"`
}

// effect is one external call in the ledger.
type effect struct {
	Name        string          `json:"name"`
	Key         string          `json:"key" doc:"What the provider gets as its idempotency key, the same in all attempts."`
	State       string          `json:"state" enum:"started,confirmed,refuted"`
	Fence       int64           `json:"fence" doc:"That of the attempt that started it last."`
	Result      json.RawMessage `json:"result,omitempty"`
	ResultBytes *string         `json:"result_base64,omitempty"`
	ResultKept  *bool           `json:"result_kept,omitempty"`
	Error       *failure        `json:"error,omitempty" doc:"The provider's refusal."`
	StartedAt   semel.Instant   `json:"started_at" format:"date-time"`
	SettledAt   semel.Instant   `json:"settled_at,omitzero" format:"date-time"`
}

// viewOf shows a record.
func (a *API) viewOf(rec *semel.Record) record {
	v := record{
		ID: rec.ID.Encode(), Tenant: rec.ID.Tenant, Principal: rec.ID.Principal, Door: rec.Door, Key: rec.ID.Key, Operation: rec.ID.Operation,
		BoundTo: rec.BoundTo, PayloadHash: rec.Fingerprint.String(), Status: rec.State.String(), Disposition: rec.Disposition.String(), Held: rec.Held,
		Error: failureOf(rec.Failure), Fence: rec.Fence, Attempt: rec.Attempt, Holder: rec.Holder,
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, StartedAt: rec.StartedAt, EndedAt: rec.EndedAt,
		LeaseUntil: rec.LeaseUntil, ExpiresAt: rec.ExpiresAt,
		Attempts: make([]attempt, 0, len(rec.Earlier)+1), Effects: make([]effect, 0, len(rec.Effects)),
	}
	v.Result, v.ResultBytes, v.ResultKept = showResult(rec.Result)
	for _, at := range rec.Earlier {
		v.Attempts = append(v.Attempts, attempt{
			Number: at.Number, Fence: at.Fence, Holder: at.Holder, Principal: at.Principal, Disposition: at.Disposition.String(),
			Error: failureOf(at.Failure), StartedAt: at.StartedAt, EndedAt: at.EndedAt,
		})
	}
	v.Attempts = append(v.Attempts, attempt{
		Number: rec.Attempt, Fence: rec.Fence, Holder: rec.Holder, Principal: rec.Principal, Disposition: v.Disposition,
		Error: v.Error, StartedAt: rec.StartedAt, EndedAt: rec.EndedAt,
	})
	for i := range rec.Effects {
		v.Effects = append(v.Effects, effectOf(&rec.Effects[i]))
	}
	v.showLater(rec)
	v.Decisions, v.Since = a.observer.decisions(rec.ID)
	return v
}

func effectOf(ef *semel.EffectRecord) effect {
	v := effect{
		Name: ef.Name, Key: ef.Key, State: string(ef.State), Fence: ef.Fence, Error: failureOf(ef.Failure),
		StartedAt: ef.StartedAt, SettledAt: ef.SettledAt,
	}
	v.Result, v.ResultBytes, v.ResultKept = showResult(ef.Result)
	return v
}

// showResult gives a result in the form that keeps every byte of it.
func showResult(res semel.Result) (text json.RawMessage, bytes *string, kept *bool) {
	if res.Tombstone {
		kept = new(bool)
	}
	switch {
	case res.Data == nil:
	case compact(res.Data):
		text = res.Data
	default:
		s := encodeBytes(res.Data)
		bytes = &s
	}
	return text, bytes, kept
}

func failureOf(f *semel.Failure) *failure {
	if f == nil {
		return nil
	}
	return &failure{f.Code, f.Message}
}

// failure as the engine has it; nil for nil.
func (f *failure) kept() *semel.Failure {
	if f == nil {
		return nil
	}
	return &semel.Failure{Code: f.Code, Message: f.Message}
}

// operation is a declared policy as it is shown.
type operation struct {
	Name           string   `json:"name"`
	Class          string   `json:"class" enum:"I0,I1,I2,I3"`
	Financial      bool     `json:"financial"`
	Window         int64    `json:"window_ms" doc:"How long an outcome is kept."`
	Lease          int64    `json:"lease_ms" doc:"How long a silent holder keeps the right to execute."`
	OnFailure      string   `json:"on_failure" enum:"replay,retry"`
	OnAbandoned    string   `json:"on_abandoned" enum:"hold,retry"`
	InFlight       string   `json:"in_flight" enum:"refuse,wait"`
	MaxWait        int64    `json:"max_wait_ms"`
	Share          string   `json:"share" enum:"principal,tenant"`
	MaxResult      int      `json:"max_result" doc:"Bytes of a result that are kept."`
	Shields        []string `json:"shields" nullable:"false"`
	Effects        []string `json:"effects,omitempty" nullable:"false" doc:"The declared effects. Absent: none are declared and any may be used."`
	Reconciles     bool     `json:"reconciles" doc:"Held records are settled by asking the provider."`
	ReconcileEvery int64    `json:"reconcile_every_ms"`
	RefuseLate     bool     `json:"refuse_late"`
	Archive        bool     `json:"archive"`
	Evidence       string   `json:"evidence" enum:"none,changes,decisions,durable"`
	Confirms       bool     `json:"confirms" doc:"A call is to be confirmed before it runs."`
	Compensation   string   `json:"compensation,omitempty" doc:"The operation that undoes this one."`
	PerRecord      *rate    `json:"per_record,omitempty"`
	PerPrincipal   *rate    `json:"per_principal,omitempty"`
}

// rate is a limit of duplicates.
type rate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
}

func operationOf(op semel.Operation) operation {
	v := operation{
		Name: op.Name, Class: string(op.Class), Financial: op.Financial, Window: op.Window.Milliseconds(), Lease: op.Lease.Milliseconds(),
		OnFailure: string(op.OnFailure), OnAbandoned: string(op.OnAbandoned), InFlight: string(op.InFlight), MaxWait: op.MaxWait.Milliseconds(),
		Share: string(op.Share), MaxResult: op.MaxResult, Shields: make([]string, 0, len(op.Shields)), Effects: op.Effects,
		Reconciles: op.Reconcile != nil, ReconcileEvery: op.ReconcileEvery.Milliseconds(), RefuseLate: op.RefuseLate, Archive: op.Archive,
		Evidence: string(op.Evidence), Confirms: op.Confirmation != nil, Compensation: op.Compensation,
		PerRecord: rateOf(op.PerRecord), PerPrincipal: rateOf(op.PerPrincipal),
	}
	for _, s := range op.Shields {
		v.Shields = append(v.Shields, string(s))
	}
	return v
}

func rateOf(r semel.Rate) *rate {
	if r.Burst == 0 {
		return nil
	}
	return &rate{r.PerSecond, r.Burst}
}
