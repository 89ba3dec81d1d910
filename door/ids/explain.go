package ids

import (
	"cmp"
	"strings"

	"github.com/semelhq/semel"
)

// Policy says how a registry protects a command, for people and other programs (IDS-VI.5).
type Policy struct {
	Class         semel.Class         `json:"class"`
	Justification string              `json:"justification,omitempty"`
	Window        Duration            `json:"window"`
	Late          Late                `json:"late"`
	Bound         Principal           `json:"bound_to"`
	Shields       []semel.Shield      `json:"shields,omitempty"`
	OnFailure     semel.AfterFailure  `json:"on_failure"`
	OnAbandoned   semel.AfterAbandon  `json:"on_abandoned"`
	Evidence      semel.EvidenceLevel `json:"evidence"`
	Confirmation  *PolicyConfirmation `json:"confirmation,omitempty"`
	Rights        *PolicyRights       `json:"rights,omitempty"`
	Handler       string              `json:"handler"`
}

// PolicyConfirmation says how long a command's confirmation is valid, and which further proof
// it needs.
type PolicyConfirmation struct {
	TTL    Duration `json:"ttl"`
	StepUp string   `json:"step_up,omitempty"`
}

// PolicyRights are the rights that a command needs.
type PolicyRights struct {
	Execute []string `json:"execute,omitempty"`
	Read    []string `json:"read,omitempty"`
}

// Derived is the key of an envelope, for people and other programs.
type Derived struct {
	Canonical      string `json:"canonical"`
	IdempotencyKey string `json:"idempotency_key"`
	// RecordKey is set if the caller chose another key.
	RecordKey string `json:"record_key,omitempty"`
}

// Explanation says how an envelope gets its key, and how the registry protects its command.
type Explanation struct {
	Derived
	Command string `json:"command"`
	// Principal is the actor that the key is bound to.
	Principal BoundTo    `json:"principal"`
	Entered   []string   `json:"entered"`
	Stripped  []Stripped `json:"stripped"`
	// Policy is the registry's policy; absent without a registry.
	Policy *Policy `json:"policy,omitempty"`
}

// BoundTo is the principal in a key, and the member of the envelope that names it.
type BoundTo struct {
	Member string `json:"member"`
	ID     string `json:"id"`
}

// Explain explains the derivation.
func (d *Derivation) Explain() *Explanation {
	x := &Explanation{
		Derived: Derived{Canonical: string(d.Canonical), IdempotencyKey: d.Key}, Command: d.Command.Intent.Name(),
		Principal: BoundTo{d.PrincipalMember, d.Principal}, Entered: d.Entered, Stripped: append([]Stripped{}, d.Stripped...), // not nil
	}
	if d.RecordKey != d.Key {
		x.RecordKey = d.RecordKey
	}
	if d.Entry != nil {
		x.Policy = d.Entry.Policy()
	}
	return x
}

// Policy returns the declared policy, defaults included.
func (e *Entry) Policy() *Policy {
	p := &Policy{
		Class: e.Class, Justification: e.Justification, Window: e.Window, Late: e.Late, Bound: e.Binding.Principal,
		OnFailure: e.OnFailure, OnAbandoned: e.OnAbandoned, Evidence: e.Evidence,
		Handler: e.Handler.Func + e.Handler.URL,
	}
	for _, s := range e.Shields {
		p.Shields = append(p.Shields, s.Strategy)
	}
	if c := e.Confirmation; c != nil {
		p.Confirmation = &PolicyConfirmation{c.TTL, cmp.Or(c.StepUp, c.StepUpURL)}
	}
	if len(e.Rights.Execute)+len(e.Rights.Read) > 0 {
		p.Rights = &PolicyRights{e.Rights.Execute, e.Rights.Read}
	}
	return p
}

// String returns the policy in one line.
func (p *Policy) String() string {
	parts := []string{string(p.Class), "window " + p.Window.String()}
	if p.Class == semel.ReadOnly {
		parts[1] = "runs for each delivery"
	}
	if p.Late == LateRefused {
		parts = append(parts, "refused if late")
	}
	for _, s := range p.Shields {
		parts = append(parts, "shield "+string(s))
	}
	if c := p.Confirmation; c != nil {
		parts = append(parts, strings.TrimSuffix("confirmed within "+c.TTL.String()+" with "+c.StepUp, " with "))
	}
	return strings.Join(append(parts, "bound to "+string(p.Bound), "after a failure "+string(p.OnFailure), "evidence "+string(p.Evidence)), ", ")
}
