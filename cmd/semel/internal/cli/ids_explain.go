package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door/ids"
)

func newIDsExplain() *cobra.Command {
	var f envelopeFlags
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show which fields of an envelope make its key",
		Long: `Show which fields of a command envelope make its key, which don't, and why; and how
the registry protects the command.

The JSON has command, principal (with member and id), entered, stripped (each
with path and why), canonical, idempotency_key and record_key as 'semel ids key',
and with --registry policy: class, justification, window, late, bound_to, shields,
on_failure, on_abandoned, evidence, confirmation, rights and handler.`,
		Example: `  semel ids explain < envelope.json
  semel ids explain --registry registry.yaml --envelope envelope.json --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := f.derive(cmd)
			if err != nil {
				return err
			}
			x := d.Explain()
			return printReport(cmd, x, func(w io.Writer) error { return printExplanation(w, x) }, false)
		},
	}
	f.add(cmd)
	return cmd
}

func printExplanation(w io.Writer, x *ids.Explanation) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s"+format+"\n", append([]any{label}, args...)...)
	}
	line("command", "%s", printable(x.Command))
	if p := x.Policy; p != nil {
		line("policy", "%s", p)
		if p.Justification != "" {
			line("because", "%s", p.Justification)
		}
		line("handler", "%s", p.Handler)
	}
	line("principal", "%s from %s", printable(x.Principal.ID), x.Principal.Member)
	line("in the key", "%s", strings.Join(x.Entered, ", "))
	label := "left out"
	for _, s := range x.Stripped {
		line(label, "%s: %s", printable(s.Path), s.Why)
		label = ""
	}
	line("canonical", "%s", printable(x.Canonical))
	line("key", "%s", x.IdempotencyKey)
	if x.RecordKey != "" {
		line("record", "%s", printable(x.RecordKey))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
