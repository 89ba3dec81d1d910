package ids

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/internal/reconcile"
)

// Registry declares commands. Make one with [Load] or [NewRegistry], which check it, and
// don't change it afterwards; any number of goroutines may use it.
type Registry struct {
	// Version is the version of the format: 1.
	Version int `json:"version" required:"true"`
	// Commands are the declarations, one for each entity and action.
	Commands []Entry `json:"commands" required:"true"`

	byName map[string]*Entry
}

// Lookup finds the declaration of a kind of command.
func (r *Registry) Lookup(entity, action string) (*Entry, bool) {
	e, ok := r.byName[Intent{Entity: entity, Action: action}.Name()]
	return e, ok
}

// Entry declares one kind of command (IDS-VI.1). [Load] and [NewRegistry] fill in the
// defaults that are documented here.
type Entry struct {
	// Entity and Action name the kind of command: lower-case words. Required.
	Entity string `json:"entity" required:"true"`
	Action string `json:"action" required:"true"`
	// Description of the command, for people.
	Description string `json:"description"`
	// Mutates says whether it changes anything. Defaults to true.
	Mutates *bool `json:"mutates"`
	// Class defaults to I1 for a mutation and to I0 for what changes nothing.
	Class semel.Class `json:"class" enum:"I0,I1,I2,I3"`
	// Justification says why a mutation may be weaker than I1, or have a window
	// that is shorter than 24 hours (IDS-VI.2).
	Justification string `json:"justification"`
	// Window is how long outcomes last. Defaults to 24 hours, or 7 days for a
	// financial command; class I2 has to set it (IDS-VI.4).
	Window Duration `json:"window" range:"0s,"`
	// Financial and Critical commands need windows of at least 24 hours (IDS-VIII.3).
	Financial bool `json:"financial"`
	Critical  bool `json:"critical"`
	// Late says what becomes of a delivery that was sent before the window, when its outcome
	// may be forgotten (IDS-V.3). Defaults to refuse if Financial or Critical, and to run.
	Late Late `json:"late" enum:"refuse,run"`
	// Archive keeps expired outcomes until they are archived. Defaults to true for a
	// financial command.
	Archive *bool `json:"archive"`
	// CommandKind is the class of mutation. If it is set it is part of the key, and an
	// envelope with another one is refused.
	CommandKind string `json:"command_kind"`
	// CallerKey lets callers choose the key by idempotency_key. Without it, a key
	// that a caller sends must equal the one derived from the envelope.
	CallerKey bool `json:"caller_key"`

	// Binding says to whom the command belongs.
	Binding Binding `json:"binding"`
	// Args is about the arguments.
	Args Args `json:"args"`
	// Confirmation requires a confirmation before the command is executed. Nil: none.
	Confirmation *Confirmation `json:"confirmation"`
	// Shields keep external effects from happening twice; class I3 needs one.
	Shields []ShieldEntry `json:"shields"`
	// Evidence is how much goes to the evidence log. Defaults to decisions, which is
	// the least for a mutation (IDS-XII.1).
	Evidence semel.EvidenceLevel `json:"evidence" enum:"none,changes,decisions,durable"`
	// Rights are who may run it and who may read its outcome.
	Rights Rights `json:"rights"`
	// Redact are parts of the outcome that not every reader gets (IDS-XV.4).
	Redact []Redaction `json:"redact"`
	// Handler runs it. Required.
	Handler HandlerEntry `json:"handler" required:"true"`

	// Lease, OnFailure, OnAbandoned and MaxWait are as in [semel.Operation].
	Lease       Duration           `json:"lease" range:"0s,"`
	OnFailure   semel.AfterFailure `json:"on_failure" enum:"replay,retry"`
	OnAbandoned semel.AfterAbandon `json:"on_abandoned" enum:"hold,retry"`
	MaxWait     Duration           `json:"max_wait" range:"0s,"`
	// Limits are how many duplicates are answered.
	Limits

	at     string // path in the file
	schema *argschema.Schema
}

// Limits limit duplicates (IDS-XV.3).
type Limits struct {
	// PerRecord defaults to one a second with a burst of 20, PerPrincipal to none.
	PerRecord    RateEntry `json:"per_record"`
	PerPrincipal RateEntry `json:"per_principal"`
}

// Late says what happens to a delivery that comes after its window is over.
type Late string

// The ways to treat late deliveries.
const (
	LateRefused Late = "refuse" // nothing is executed
	LateRuns    Late = "run"    // it counts as a new command
)

// Principal says which actor a command is bound to.
type Principal string

// The principals.
const (
	BindActor          Principal = "actor"           // the sender; the default
	BindEffectiveActor Principal = "effective_actor" // the actor whom the sender acts for (IDS-VII.6)
)

// Binding says which principal a command belongs to: that principal goes into the key, and only
// they, and callers who may act for them, share it.
type Binding struct {
	// Principal defaults to actor.
	Principal Principal `json:"principal" enum:"actor,effective_actor"`
	// Acting are the rights that let a caller act for another, such as a system that
	// retries for a user. Any one is enough. Required with effective_actor. The keys
	// of the operation are then shared within the tenant, and every replayed answer is
	// authorised anew.
	Acting []string `json:"acting"`
}

// Args declares the arguments.
type Args struct {
	// Schema is a JSON Schema (2020-12) of the args as they are after normalisation
	// and before anything is stripped. It can't refer to other schemas. Nil: any
	// object.
	Schema json.RawMessage `json:"schema"`
	// Normalise has the normalisations of arguments, applied in this order before
	// deliveries are compared. The handler gets the normalised arguments.
	Normalise []Normalisation `json:"normalise"`
	// Strip are paths of arguments that are different in every delivery and stay
	// out of the key. The handler gets the values of the delivery that is executed.
	Strip []Path `json:"strip"`
	// Keep are arguments that look as if they differed in every delivery, but don't.
	Keep []Kept `json:"keep"`
}

// Normalisation normalises the arguments at a path.
type Normalisation struct {
	Path Path `json:"path" required:"true"`
	// Default is a JSON value for an absent argument, so that leaving it out and writing
	// it out mean the same. Paths through arrays have none.
	Default json.RawMessage `json:"default"`
	// Rules are applied in this order. They skip a value of another type, which is the schema's business.
	Rules []Rule `json:"rules" enum:"trim,collapse,lower,upper,decimal,phone,set"`
}

// Rule is one way to normalise a value.
type Rule string

// The rules.
const (
	RuleTrim     Rule = "trim"     // removes white space at both ends of a string
	RuleCollapse Rule = "collapse" // any white space inside a string becomes one space
	RuleLower    Rule = "lower"    // puts a string in lower case
	RuleUpper    Rule = "upper"    // puts a string in upper case
	RuleDecimal  Rule = "decimal"  // turns a number, or a string with one, into a string without exponent and needless zeros
	RulePhone    Rule = "phone"    // turns a telephone number with its country code into + and digits (E.164)
	RuleSet      Rule = "set"      // treats an array as a set: sorts its items by their canonical form and drops duplicates
)

// Kept is an argument with an ephemeral name that doesn't change between deliveries.
type Kept struct {
	Path Path `json:"path" required:"true"`
	// Because says why the argument is the same in all deliveries of one command.
	Because string `json:"because" required:"true"`
}

// Confirmation is the policy of confirming a command (IDS-X.1).
type Confirmation struct {
	// TTL and MaxTries are as in [semel.ConfirmationPolicy].
	TTL      Duration `json:"ttl" range:"0s,"`
	MaxTries int      `json:"max_tries"`
	// StepUp names the verifier of a further proof; see [Bindings]. StepUpURL is asked
	// instead. Without either no further proof is needed.
	StepUp    string `json:"step_up"`
	StepUpURL string `json:"step_up_url"`
}

// ShieldEntry is one strategy that keeps an effect from happening twice (IDS-XI.1).
type ShieldEntry struct {
	Strategy semel.Shield `json:"strategy" required:"true" enum:"S1,S2,S3,S4"`
	// Effects names the shielded effects: with S1 the ones with a derived key, with S3
	// the ones in the ledger. By declaring them you promise that the command has no other
	// external effects; see Operation.Effects in package semel.
	Effects []string `json:"effects"`
	// Header carries the derived key to the upstream of S1. Defaults to
	// Idempotency-Key.
	Header string `json:"header"`
	// Destination is where the message of S2 goes. Required there.
	Destination string `json:"destination"`
	// Reconciler names the function that asks the provider, for S4; see [Bindings].
	// ReconcileURL is asked instead, or a vendor by Reconcile. One of them is required there.
	Reconciler   string    `json:"reconciler"`
	ReconcileURL string    `json:"reconcile_url"`
	Reconcile    Reconcile `json:"reconcile"`
	// Every is the pause between two questions about one record, for S4.
	Every Duration `json:"every" range:"0s,"`
	// Compensation is the command that undoes this one, such as "order.reopen". Required
	// with S4.
	Compensation string `json:"compensation"`
	// Compensator names the function that undoes this command; see [Bindings]. The undoing
	// is posted to CompensateURL instead. One of them is required with S4.
	Compensator   string `json:"compensator"`
	CompensateURL string `json:"compensate_url"`
}

// Reconcile says which vendor, or which database, knows what became of a held command.
type Reconcile = reconcile.Settings

// Rights are names of rights; a caller needs all of a list.
type Rights struct {
	Execute []string `json:"execute"`
	Read    []string `json:"read"`
}

// Redaction hides part of the outcome from readers without a right.
type Redaction struct {
	// Path is in the outcome.
	Path Path `json:"path" required:"true"`
	// Unless is the right that lets a reader see it. Empty: no reader sees it again.
	Unless string `json:"unless"`
}

// HandlerEntry says what runs a command: exactly one of Func and URL is set.
type HandlerEntry struct {
	// Func is the name of a Go function; see [Bindings].
	Func string `json:"func"`
	// URL is where the command is sent by POST.
	URL string `json:"url"`
	// Timeout is how long the upstream may take. Defaults to 10 seconds.
	Timeout Duration `json:"timeout" range:"0s,"`
	// Answers say what the upstream's answers mean, in place of the table of package judge.
	Answers judge.Answers `json:"answers"`
}

// RateEntry is a [semel.Rate].
type RateEntry struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
}

// Handler runs a command, in at most one attempt at a time. Its error decides how the
// attempt ends, as in [semel.Engine.Do].
type Handler func(ctx context.Context, x semel.Execution, d *Derivation) (semel.Result, error)

// Bindings are the functions that a registry names. Your program provides them; the
// registry says which command uses which.
type Bindings struct {
	Handlers     map[string]Handler
	StepUps      map[string]func(ctx context.Context, call semel.Call) error
	Reconcilers  map[string]semel.Reconciler
	Compensators map[string]semel.Compensator
	// Authorize is called before an outcome is replayed; see Operation.Authorize in
	// package semel. A [Gateway] calls it after its own rules, so it may be nil there;
	// without a gateway, commands that are bound to an effective actor need it.
	Authorize func(ctx context.Context, e *Entry, call semel.Call, rec semel.Record) error

	ask      *asker // a gateway's; nil: make another one
	remember Duration
}

// Name returns the name of the kind of command and of its operation, such as "order.cancel".
func (e *Entry) Name() string { return e.Entity + "." + e.Action }

// mutates returns Mutates with its default.
func (e *Entry) mutates() bool { return e.Mutates == nil || *e.Mutates }

func (e *Entry) shield(s semel.Shield) *ShieldEntry {
	i := slices.IndexFunc(e.Shields, func(x ShieldEntry) bool { return x.Strategy == s })
	if i < 0 {
		return nil
	}
	return &e.Shields[i]
}
