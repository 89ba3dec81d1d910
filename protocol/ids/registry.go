package ids

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/semelhq/semel"
)

// Registry declares commands. It is made by [Load] or [NewRegistry], which refuse one
// that is wrong, and not changed afterwards; any number of goroutines may use it.
type Registry struct {
	// Version is the version of the format: 1.
	Version int `yaml:"version" need:"yes"`
	// Commands are the declarations, one for each entity and action.
	Commands []Entry `yaml:"commands" need:"yes"`

	byName map[string]*Entry
}

// Lookup finds the declaration of a kind of command.
func (r *Registry) Lookup(entity, action string) (*Entry, bool) {
	e, ok := r.byName[Intent{Entity: entity, Action: action}.Name()]
	return e, ok
}

// Entry declares one kind of command (IDS-VI.1). What is left out is as documented
// here; [Load] and [NewRegistry] fill it in.
type Entry struct {
	// Entity and Action name the kind of command: lower-case words. Required.
	Entity string `yaml:"entity" need:"yes"`
	Action string `yaml:"action" need:"yes"`
	// Description says what it does, for people.
	Description string `yaml:"description"`
	// Mutates says whether it changes anything. Defaults to true.
	Mutates *bool `yaml:"mutates"`
	// Class defaults to I1 for a mutation and to I0 for what changes nothing.
	Class semel.Class `yaml:"class" oneof:"I0,I1,I2,I3"`
	// Justification says why a mutation may be weaker than I1, or have a window
	// that is shorter than 24 hours (IDS-VI.2).
	Justification string `yaml:"justification"`
	// Window is how long outcomes are kept. Defaults to 24 hours, or 7 days for a
	// financial command; class I2 has to set it (IDS-VI.4).
	Window Duration `yaml:"window"`
	// Financial and Critical commands have windows of at least 24 hours (IDS-VIII.3).
	Financial bool `yaml:"financial"`
	Critical  bool `yaml:"critical"`
	// CommandKind is the class of mutation. Where it is set it is part of the key,
	// and an envelope that says another is refused.
	CommandKind string `yaml:"command_kind"`
	// CallerKey lets callers choose the key by idempotency_key. Without it a key
	// that a caller brings must be the one of the envelope.
	CallerKey bool `yaml:"caller_key"`

	// Binding says whose the command is.
	Binding Binding `yaml:"binding"`
	// Args is about the arguments.
	Args Args `yaml:"args"`
	// Confirmation asks for a confirmation before the command is executed. Nil: none.
	Confirmation *Confirmation `yaml:"confirmation"`
	// Shields keep effects outside from happening twice; class I3 needs one.
	Shields []ShieldEntry `yaml:"shields"`
	// Evidence is how much goes to the evidence log. Defaults to decisions, which is
	// the least for a mutation (IDS-XII.1).
	Evidence semel.EvidenceLevel `yaml:"evidence" oneof:"none,changes,decisions,durable"`
	// Rights are who may run it and who may read its outcome.
	Rights Rights `yaml:"rights"`
	// Redact are parts of the outcome that not every reader gets (IDS-XV.4).
	Redact []Redaction `yaml:"redact"`
	// Handler runs it. Required.
	Handler HandlerEntry `yaml:"handler" need:"yes"`

	// Lease, OnFailure, OnAbandoned and MaxWait are as in [semel.Operation].
	Lease       Duration           `yaml:"lease"`
	OnFailure   semel.AfterFailure `yaml:"on_failure" oneof:"replay,retry"`
	OnAbandoned semel.AfterAbandon `yaml:"on_abandoned" oneof:"hold,retry"`
	MaxWait     Duration           `yaml:"max_wait"`
	// PerRecord and PerPrincipal limit duplicates (IDS-XV.3). PerRecord defaults to
	// one a second with a burst of 20, PerPrincipal to none.
	PerRecord    RateEntry `yaml:"per_record"`
	PerPrincipal RateEntry `yaml:"per_principal"`

	at     string // path in the file
	schema *jsonschema.Schema
}

// Principal is which actor a command is bound to.
type Principal string

// The principals.
const (
	BindActor          Principal = "actor"           // who sends it; the default
	BindEffectiveActor Principal = "effective_actor" // for whom it acts (IDS-VII.6)
)

// Binding says whose a command is: that one enters the key, and only he and those
// who may act for him share it.
type Binding struct {
	// Principal defaults to actor.
	Principal Principal `yaml:"principal" oneof:"actor,effective_actor"`
	// Acting are the rights that let a caller act for another, such as a system that
	// retries for a user. Any one is enough. Required with effective_actor. The keys
	// of the operation are then shared within the tenant, and every answer that is
	// replayed is authorised anew.
	Acting []string `yaml:"acting"`
}

// Args declares the arguments.
type Args struct {
	// Schema is a JSON Schema (2020-12) of the args as they are after normalisation
	// and before anything is stripped. References lead nowhere outside of it. Nil:
	// any object.
	Schema json.RawMessage `yaml:"schema"`
	// Normalise has what is done to arguments before they are compared, in this
	// order. The handler gets the normalised ones.
	Normalise []Normalisation `yaml:"normalise"`
	// Strip are paths of arguments that are different in every delivery and stay
	// out of the key. The handler gets those of the delivery that is executed.
	Strip []Path `yaml:"strip"`
	// Keep are arguments that look as if they were, but are not.
	Keep []Kept `yaml:"keep"`
}

// Normalisation is what is done to the arguments at a path.
type Normalisation struct {
	Path Path `yaml:"path" need:"yes"`
	// Default is a JSON value that stands for an absent argument, so that a caller
	// who leaves it out and one who writes it out mean the same. Paths through
	// arrays have none.
	Default json.RawMessage `yaml:"default"`
	// Rules are applied in this order. A value of another type is left to the schema.
	Rules []Rule `yaml:"rules" oneof:"trim,collapse,lower,upper,decimal,phone,set"`
}

// Rule is one way to normalise a value.
type Rule string

// The rules.
const (
	RuleTrim     Rule = "trim"     // white space at both ends of a string goes
	RuleCollapse Rule = "collapse" // any white space inside a string becomes one space
	RuleLower    Rule = "lower"    // a string in lower case
	RuleUpper    Rule = "upper"    // a string in upper case
	RuleDecimal  Rule = "decimal"  // a number, or a string with one, becomes a string without exponent and without needless zeros
	RulePhone    Rule = "phone"    // a telephone number with its country code becomes + and digits (E.164)
	RuleSet      Rule = "set"      // an array is a set: its items are sorted by their canonical form, each once
)

// Kept is an argument with the name of something ephemeral that is not.
type Kept struct {
	Path Path `yaml:"path" need:"yes"`
	// Because says why all deliveries of one command have the same.
	Because string `yaml:"because" need:"yes"`
}

// Confirmation is the policy of confirming a command (IDS-X.1).
type Confirmation struct {
	// TTL and MaxTries are as in [semel.ConfirmationPolicy].
	TTL      Duration `yaml:"ttl"`
	MaxTries int      `yaml:"max_tries"`
	// StepUp names the verifier of a further proof; see [Bindings]. Empty: none.
	StepUp string `yaml:"step_up"`
}

// ShieldEntry is one strategy that keeps an effect from happening twice (IDS-XI.1).
type ShieldEntry struct {
	Strategy semel.Shield `yaml:"strategy" need:"yes" oneof:"S1,S2,S3,S4"`
	// Effects names the effects that are shielded: with S1 those that get a derived
	// key, with S3 those in the ledger. Declared, they are all that the command
	// does outside; see Operation.Effects in package semel.
	Effects []string `yaml:"effects"`
	// Header carries the derived key to the upstream of S1. Defaults to
	// Idempotency-Key.
	Header string `yaml:"header"`
	// Destination is where the message of S2 goes. Required there.
	Destination string `yaml:"destination"`
	// Reconciler names who asks the provider, for S4; see [Bindings]. Required there.
	Reconciler string `yaml:"reconciler"`
	// Every is the pause between two questions about one record, for S4.
	Every Duration `yaml:"every"`
	// Compensation is the command that undoes this one, such as "order.reopen", and
	// Compensator names who does it; see [Bindings]. Required with S4.
	Compensation string `yaml:"compensation"`
	Compensator  string `yaml:"compensator"`
}

// Rights are names of rights; a caller needs all of a list.
type Rights struct {
	Execute []string `yaml:"execute"`
	Read    []string `yaml:"read"`
}

// Redaction hides a part of the outcome from readers without a right.
type Redaction struct {
	// Path is in the outcome.
	Path Path `yaml:"path" need:"yes"`
	// Unless is the right that lets a reader see it. Empty: nobody is shown it again.
	Unless string `yaml:"unless"`
}

// HandlerEntry says what runs a command: exactly one of Func and URL is set.
type HandlerEntry struct {
	// Func is the name of a Go function; see [Bindings].
	Func string `yaml:"func"`
	// URL is where the command is sent by POST.
	URL string `yaml:"url"`
	// Timeout is how long the upstream may take. Defaults to 10 seconds.
	Timeout Duration `yaml:"timeout"`
}

// RateEntry is a [semel.Rate].
type RateEntry struct {
	PerSecond float64 `yaml:"per_second"`
	Burst     int     `yaml:"burst"`
}

// Handler runs a command: at most one attempt at a time, of the delivery that
// executes. What its error says decides what becomes of the attempt, as in
// [semel.Engine.Do].
type Handler func(ctx context.Context, x semel.Execution, d *Derivation) (semel.Result, error)

// Bindings are the functions that a registry names. A program registers them; the
// file says which command uses which.
type Bindings struct {
	Handlers     map[string]Handler
	StepUps      map[string]func(ctx context.Context, call semel.Call) error
	Reconcilers  map[string]semel.Reconciler
	Compensators map[string]semel.Compensator
	// Authorize is asked before an outcome is replayed; see Operation.Authorize in
	// package semel. A [Gateway] asks it after its own rules, so it may be nil there;
	// commands that are bound to an effective actor need it where there is no gateway.
	Authorize func(ctx context.Context, e *Entry, call semel.Call, rec semel.Record) error
}

// Name is that of the kind of command and of its operation, such as "order.cancel".
func (e *Entry) Name() string { return e.Entity + "." + e.Action }

// mutates is Mutates with its default.
func (e *Entry) mutates() bool { return e.Mutates == nil || *e.Mutates }

// shield finds a strategy.
func (e *Entry) shield(s semel.Shield) *ShieldEntry {
	i := slices.IndexFunc(e.Shields, func(x ShieldEntry) bool { return x.Strategy == s })
	if i < 0 {
		return nil
	}
	return &e.Shields[i]
}
