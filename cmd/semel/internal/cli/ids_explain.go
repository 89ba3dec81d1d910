package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
)

// idsExplanation is what semel ids explain --json prints.
type idsExplanation struct {
	derivedIDs
	Command string `json:"command"`
	// Principal is who the key is bound to, and Member where that is from.
	Principal idsPrincipal   `json:"principal"`
	Entered   []string       `json:"entered"`
	Stripped  []ids.Stripped `json:"stripped"`
	// Policy is that of the registry; absent without one.
	Policy *idsPolicy `json:"policy,omitempty"`
}

type idsPrincipal struct {
	Member string `json:"member"`
	ID     string `json:"id"`
}

// idsPolicy is how a registry protects a command.
type idsPolicy struct {
	Class         semel.Class         `json:"class"`
	Justification string              `json:"justification,omitempty"`
	Window        ids.Duration        `json:"window"`
	Bound         ids.Principal       `json:"bound_to"`
	Shields       []semel.Shield      `json:"shields,omitempty"`
	OnFailure     semel.AfterFailure  `json:"on_failure"`
	OnAbandoned   semel.AfterAbandon  `json:"on_abandoned"`
	Evidence      semel.EvidenceLevel `json:"evidence"`
	Confirmation  *idsConfirmation    `json:"confirmation,omitempty"`
	Rights        *idsRights          `json:"rights,omitempty"`
	Handler       string              `json:"handler"`
}

type idsConfirmation struct {
	TTL    ids.Duration `json:"ttl"`
	StepUp string       `json:"step_up,omitempty"`
}

type idsRights struct {
	Execute []string `json:"execute,omitempty"`
	Read    []string `json:"read,omitempty"`
}

func newIDsPolicy(e *ids.Entry) idsPolicy {
	p := idsPolicy{
		Class: e.Class, Justification: e.Justification, Window: e.Window, Bound: e.Binding.Principal,
		OnFailure: e.OnFailure, OnAbandoned: e.OnAbandoned, Evidence: e.Evidence,
		Handler: e.Handler.Func + e.Handler.URL,
	}
	for _, s := range e.Shields {
		p.Shields = append(p.Shields, s.Strategy)
	}
	if c := e.Confirmation; c != nil {
		p.Confirmation = &idsConfirmation{c.TTL, cmp.Or(c.StepUp, c.StepUpURL)}
	}
	if len(e.Rights.Execute)+len(e.Rights.Read) > 0 {
		p.Rights = &idsRights{e.Rights.Execute, e.Rights.Read}
	}
	return p
}

// summary is the policy in one line.
func (p *idsPolicy) summary() string {
	parts := []string{string(p.Class)}
	if p.Class == semel.ReadOnly {
		parts = append(parts, "runs for each delivery")
	} else {
		parts = append(parts, "window "+p.Window.String())
	}
	for _, s := range p.Shields {
		parts = append(parts, "shield "+string(s))
	}
	if c := p.Confirmation; c != nil {
		text := "confirmed within " + c.TTL.String()
		if c.StepUp != "" {
			text += " with " + c.StepUp
		}
		parts = append(parts, text)
	}
	return strings.Join(append(parts, "bound to "+string(p.Bound), "after a failure "+string(p.OnFailure), "evidence "+string(p.Evidence)), ", ")
}

func newIDsExplain() *cobra.Command {
	var f envelopeFlags
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show which fields of an envelope make its key",
		Long: `Show which fields of a command envelope make its key, which don't, and why; and how
the registry protects the command.

The JSON has command, principal (with member and id), entered, stripped (each
with path and why), canonical, idempotency_key and record_key as 'semel ids key',
and with --registry policy: class, justification, window, bound_to, shields,
on_failure, on_abandoned, evidence, confirmation, rights and handler.`,
		Example: `  semel ids explain < envelope.json
  semel ids explain --registry registry.yaml --envelope envelope.json --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := f.derive(cmd)
			if err != nil {
				return err
			}
			x := idsExplanation{
				derivedIDs: newDerivedIDs(d), Command: d.Command.Intent.Name(), Principal: idsPrincipal{d.PrincipalMember, d.Principal},
				Entered: d.Entered, Stripped: d.Stripped,
			}
			if x.Stripped == nil {
				x.Stripped = []ids.Stripped{} // [] in JSON
			}
			if d.Entry != nil {
				policy := newIDsPolicy(d.Entry)
				x.Policy = &policy
			}
			if f.asJSON {
				return printJSON(cmd.OutOrStdout(), x)
			}
			return x.print(cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	return cmd
}

func (x *idsExplanation) print(w io.Writer) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s"+format+"\n", append([]any{label}, args...)...)
	}
	line("command", "%s", printable(x.Command))
	if p := x.Policy; p != nil {
		line("policy", "%s", p.summary())
		if p.Justification != "" {
			line("because", "%s", p.Justification)
		}
		line("handler", "%s", p.Handler)
	}
	line("principal", "%s from %s", printable(x.Principal.ID), x.Principal.Member)
	line("in the key", "%s", strings.Join(x.Entered, ", "))
	for i, s := range x.Stripped {
		label := ""
		if i == 0 {
			label = "left out"
		}
		line(label, "%s: %s", printable(s.Path), s.Why)
	}
	line("canonical", "%s", printable(x.Canonical))
	line("key", "%s", x.IdempotencyKey)
	if x.RecordKey != "" {
		line("record", "%s", printable(x.RecordKey))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
