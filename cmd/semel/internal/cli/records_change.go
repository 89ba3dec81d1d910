package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/store"
)

// recordChanger is the common part of the commands that change a record.
type recordChanger struct {
	change
	name  recordName
	force bool
	all   bool // everything held that qualifiers select, instead of one record
}

func (c *recordChanger) flags(cmd *cobra.Command) {
	c.name.flags(cmd)
	c.change.flags(cmd, "read the log later")
	cmd.Flags().BoolVar(&c.force, "force", false, "even if the configuration doesn't have the operation")
}

// allFlag adds the flag that changes many records at once.
func (c *recordChanger) allFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.all, "all", false, "everything held that qualifiers select")
}

// changedRecord is what --json prints of a change.
type changedRecord struct {
	// Action is "settle", "release" or "purge".
	Action string `json:"action"`
	// Done is false for a dry run.
	Done   bool   `json:"done"`
	Reason string `json:"reason"`
	// Before is the record as it was.
	Before recordLine `json:"before"`
	// After is the record that is stored now; absent if there is none.
	After *recordLine `json:"after,omitempty"`
}

// apply shows the record, asks for confirmation, and changes it. check refuses what the
// store would refuse; do returns the record that is stored afterwards, if there is one.
func (c *recordChanger) apply(cmd *cobra.Command, args []string, action, means string, check func(*semel.Record) error,
	do func(ctx context.Context, recs client.Records, id semel.ID) (*semel.Record, error),
) error {
	if c.all {
		return c.applyAll(cmd, args, action, means, check, do)
	}
	id, err := c.name.parse(cmd, args)
	if err != nil {
		return err
	}
	if err := c.check(cmd, "record"); err != nil {
		return err
	}
	return c.from.with(cmd, func(ctx context.Context, recs client.Records) error {
		before, err := c.name.find(ctx, cmd, recs, id)
		if err != nil {
			return err
		}
		id := before.ID
		if err := check(&before); err != nil {
			return err
		}
		out := changedRecord{Action: action, Reason: c.reason, Before: lineOf(&before)}
		goOn, err := c.ask(cmd, action, means, func(w io.Writer) error { return printRecord(w, &before) })
		if err != nil {
			return err
		}
		if !goOn {
			return c.report(cmd, &out)
		}
		after, err := do(ctx, recs, id)
		if err != nil {
			return err
		}
		out.Done = true
		if after != nil {
			out.After = new(lineOf(after))
		}
		return c.report(cmd, &out)
	})
}

func (c *recordChanger) report(cmd *cobra.Command, done *changedRecord) error {
	w := cmd.OutOrStdout()
	switch {
	case c.asJSON:
		return printJSON(w, done)
	case !done.Done:
		_, err := fmt.Fprintln(w, "Nothing was changed: this was a dry run.")
		return err
	case done.After == nil:
		_, err := fmt.Fprintln(w, "The record is purged.")
		return err
	}
	_, err := fmt.Fprintf(w, "The record is %s.%s\n", stateOf(done.After.of), nextOf(done.After.of))
	return err
}

const changeAll = `With --all, everything held that the qualifiers of 'semel records list' select is
changed, after one question about all of it; --dry-run only shows it. What can't be
changed is told, and the rest goes on. The JSON is then one object per line.

`

// nextOf says what the next delivery of a record that may run again does.
func nextOf(rec *semel.Record) string {
	if rec.Disposition != semel.DispositionAbandoned {
		return ""
	}
	for i := range rec.Effects {
		if rec.Effects[i].State == store.EffectConfirmed {
			return " Its next delivery runs again, and gets the results of confirmed effects instead of repeating them."
		}
	}
	return " Its next delivery runs again."
}

const changeJSON = `The JSON has action, done, reason, before and, if something is stored then, after,
both with the members that list has.`

func illegal(format string, args ...any) error {
	return &semel.Error{Code: semel.CodeIllegalTransition, Message: fmt.Sprintf(format, args...)}
}

func checkHeld(rec *semel.Record) error {
	if !rec.Held {
		return illegal("the record is %s, not held", stateOf(rec))
	}
	return nil
}

// openEffect names an effect of the record that has no result.
func openEffect(rec *semel.Record) (name string, open bool) {
	for i := range rec.Effects {
		if rec.Effects[i].State == store.EffectStarted {
			return rec.Effects[i].Name, true
		}
	}
	return "", false
}

func newRecordsRelease(from *recordsFrom) *cobra.Command {
	c := &recordChanger{change: change{from: from}}
	cmd := &cobra.Command{
		Use:               "release [NAME | --all QUALIFIER...]",
		ValidArgsFunction: from.completeQualifiers,
		Short:             "Let a held record run again, although nobody knows what happened",
		Long: `Let the next delivery of a held record run again, although nobody knows what the
attempt before did: what it did may happen twice. A record with an effect whose
result is not known has to be settled first.

` + changeAll + changeJSON,
		Example: `  semel records release RECORD --reason 'the mail may go out twice'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			check := func(rec *semel.Record) error {
				if err := checkHeld(rec); err != nil {
					return err
				}
				if name, open := openEffect(rec); open {
					return illegal("effect %s has no result: say what became of it with 'semel records settle --effect'", printable(name))
				}
				return nil
			}
			return c.apply(cmd, args, "release", "the next delivery runs again, and what this attempt did may happen twice.", check,
				func(ctx context.Context, recs client.Records, id semel.ID) (*semel.Record, error) {
					rec, err := recs.Settle(ctx, id, semel.Settlement{Outcome: semel.DispositionAbandoned, Force: c.force}, c.reason)
					return &rec, err
				})
		},
	}
	c.flags(cmd)
	c.allFlag(cmd)
	return cmd
}

func newRecordsPurge(from *recordsFrom) *cobra.Command {
	c := &recordChanger{change: change{from: from}}
	var erase bool
	cmd := &cobra.Command{
		Use:   "purge [NAME]",
		Short: "Delete a record before its window is over",
		Long: `Delete a record whose attempt has ended, before its window is over. The next
delivery of the call is a new one and runs again. A record that its operation
archives is archived first.

The evidence log keeps the record's key and principal. --erase-evidence erases them
there, together with who changed the record and why; what happened stays proved.

` + changeJSON,
		Example: `  semel records purge RECORD --reason 'asked for by the customer' --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			check := func(rec *semel.Record) error {
				if !rec.State.Terminal() {
					return illegal("the record is %s: only one whose attempt has ended can be purged", stateOf(rec))
				}
				return nil
			}
			return c.apply(cmd, args, "purge", "the record is deleted, and the next delivery of the call runs again.", check,
				func(ctx context.Context, recs client.Records, id semel.ID) (*semel.Record, error) {
					return nil, recs.Purge(ctx, id, semel.Removal{Reason: c.reason, Force: c.force, EraseEvidence: erase})
				})
		},
	}
	cmd.Flags().BoolVar(&erase, "erase-evidence", false, "also what the evidence log says about it in plain text")
	c.flags(cmd)
	return cmd
}
