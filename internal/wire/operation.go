package wire

import "github.com/semelhq/semel"

// Operation is the policy of an operation.
type Operation struct {
	Name      string `json:"name"`
	Class     string `json:"class" enum:"I0,I1,I2,I3"`
	Financial bool   `json:"financial"`
	Window    int64  `json:"window_ms" doc:"How long an outcome is kept."`
	Lease     int64  `json:"lease_ms" doc:"How long a silent holder keeps the right to execute."`
	Repeats
	Share          string   `json:"share" enum:"principal,tenant"`
	MaxResult      int      `json:"max_result" doc:"The largest result that is kept, in bytes."`
	Shields        []string `json:"shields" nullable:"false"`
	Effects        []string `json:"effects,omitempty" nullable:"false" doc:"The declared effects. Absent: none are declared and any may be used."`
	Reconciles     bool     `json:"reconciles" doc:"Held records are settled by asking the provider."`
	ReconcileEvery int64    `json:"reconcile_every_ms"`
	Ordering
	Archive      bool   `json:"archive"`
	Evidence     string `json:"evidence" enum:"none,changes,decisions,durable"`
	Confirms     bool   `json:"confirms" doc:"A call must be confirmed before it runs."`
	Compensation string `json:"compensation,omitempty" doc:"The operation that undoes this one."`
	Duplicates
	Command *Declaration `json:"command,omitempty" doc:"How a registry declares the command. Absent: the operation isn't a command's."`
}

// Repeats say what duplicates get, and whether a call runs again.
type Repeats struct {
	OnFailure   string `json:"on_failure" enum:"replay,retry"`
	OnAbandoned string `json:"on_abandoned" enum:"hold,retry"`
	InFlight    string `json:"in_flight" enum:"refuse,wait"`
	MaxWait     int64  `json:"max_wait_ms"`
}

// Ordering says which calls come too late.
type Ordering struct {
	RefuseLate bool `json:"refuse_late"`
	Sequenced  bool `json:"sequenced"`
	Gapless    bool `json:"gapless"`
}

// Duplicates are the limits of duplicates.
type Duplicates struct {
	PerRecord    *Rate `json:"per_record,omitempty"`
	PerPrincipal *Rate `json:"per_principal,omitempty"`
}

// Rate is a limit of duplicates.
type Rate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
}

// Declaration is what a registry says of a command beyond the policy of its operation.
type Declaration struct {
	Entity        string      `json:"entity"`
	Action        string      `json:"action"`
	Description   string      `json:"description,omitempty"`
	Justification string      `json:"justification,omitempty" doc:"Why it may be weaker, or have a shorter window, than the rules ask for."`
	Critical      bool        `json:"critical"`
	CommandKind   string      `json:"command_kind,omitempty"`
	Binding       Binding     `json:"binding"`
	Redact        []Redaction `json:"redact" nullable:"false" doc:"Parts of the outcome that not every reader sees."`
}

// Binding is to whom a command belongs.
type Binding struct {
	Principal string   `json:"principal" enum:"actor,effective_actor"`
	Acting    []string `json:"acting,omitempty" nullable:"false" doc:"Rights that let a caller act for another."`
}

// Redaction is a part of an outcome, and the right that shows it.
type Redaction struct {
	Path   string `json:"path"`
	Unless string `json:"unless,omitempty"`
}

// OperationList has all operations of a service.
type OperationList struct {
	Operations []Operation `json:"operations" nullable:"false"`
}

// OperationOf converts an operation, but for its command.
func OperationOf(op *semel.Operation) Operation {
	v := Operation{
		Name: op.Name, Class: string(op.Class), Financial: op.Financial, Window: op.Window.Milliseconds(), Lease: op.Lease.Milliseconds(),
		Repeats: Repeats{string(op.OnFailure), string(op.OnAbandoned), string(op.InFlight), op.MaxWait.Milliseconds()},
		Share:   string(op.Share), MaxResult: op.MaxResult, Shields: make([]string, 0, len(op.Shields)), Effects: op.Effects,
		Reconciles: op.Reconcile != nil, ReconcileEvery: op.ReconcileEvery.Milliseconds(), Ordering: Ordering{op.RefuseLate, op.Sequenced, op.Gapless}, Archive: op.OnExpiry == semel.ArchiveExpired,
		Evidence: string(op.Evidence), Confirms: op.Confirmation != nil, Compensation: op.Compensation,
		Duplicates: Duplicates{rateOf(op.PerRecord), rateOf(op.PerPrincipal)},
	}
	for _, s := range op.Shields {
		v.Shields = append(v.Shields, string(s))
	}
	return v
}

func rateOf(r semel.Rate) *Rate {
	if r.Burst == 0 {
		return nil
	}
	return &Rate{r.PerSecond, r.Burst}
}
