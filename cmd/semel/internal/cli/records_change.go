package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/verdict"
)

// recordChanger is the common part of the commands that change a record.
type recordChanger struct {
	change[semel.Record]
	name  recordName
	force bool
}

// flags adds the flags; all describes --all, as in [change.flags].
func (c *recordChanger) flags(cmd *cobra.Command, all string) {
	c.name.flags(cmd)
	c.change.flags(cmd, all)
	cmd.Flags().BoolVar(&c.force, "force", false, "even if the configuration doesn't have the operation")
}

// allHeld describes --all of the commands on held records.
const allHeld = "every held record that the qualifiers select"

// changedRecord is what --json prints of a change.
type changedRecord struct {
	changeHead
	// Before is the record as it was.
	Before recordLine `json:"before"`
	// After is the record that is stored now; absent if there is none.
	After *recordLine `json:"after,omitempty"`
}

func (c *recordChanger) words() (noun, state string) { return "record", "held" }

func (c *recordChanger) finder(cmd *cobra.Command, args []string, all bool) (func(ctx context.Context, recs client.Records) ([]*semel.Record, error), error) {
	if !all {
		id, err := c.name.parse(cmd, args)
		return func(ctx context.Context, recs client.Records) ([]*semel.Record, error) {
			rec, err := c.name.find(ctx, cmd, recs, id)
			return []*semel.Record{&rec}, err
		}, err
	}
	q, err := parseQuery(args)
	if err == nil && c.name.given(cmd) {
		err = usage("--all takes qualifiers, such as operation:NAME, instead of one record's name")
	}
	q.Held = true
	return func(ctx context.Context, recs client.Records) (found []*semel.Record, err error) {
		_, err = lookup.Each(ctx, recs, q, 0, warner(cmd), func(rec *semel.Record) error {
			found = append(found, rec)
			return nil
		})
		return found, err
	}, err
}

func (c *recordChanger) id(rec *semel.Record) string { return rec.ID.Encode() }

func (c *recordChanger) show(w io.Writer, rec *semel.Record) error { return printRecord(w, rec) }

func (c *recordChanger) list(w io.Writer, found []*semel.Record) error {
	table := newRecordTable(w, false)
	for _, rec := range found {
		table.row(rec)
	}
	return table.w.Flush()
}

func (c *recordChanger) line(head changeHead, rec, after *semel.Record) any {
	out := changedRecord{changeHead: head, Before: lineOf(rec)}
	if after != nil {
		out.After = new(lineOf(after))
	}
	return &out
}

func (c *recordChanger) done(_ string, after *semel.Record) string {
	if after == nil {
		return "The record is purged."
	}
	return verdict.Changed(after)
}

// settle is the action that settles records.
func (c *recordChanger) settle(name, means string, s *semel.Settlement, check func(*semel.Record) error) action[semel.Record] {
	s.Force, s.Who = c.force, localName()
	return action[semel.Record]{name, means, check, func(ctx context.Context, recs client.Records, rec *semel.Record) (*semel.Record, error) {
		s.Fence = rec.Fence // a later attempt is another question
		after, err := recs.Settle(ctx, rec.ID, *s, c.reason)
		return &after, err
	}}
}

const changeAll = `--all changes every one that the qualifiers of 'semel records list' select, after one
question; --dry-run only shows them. It reports what it can't change, and continues. The
JSON is then one object per line.

`

const changeJSON = `The JSON has action, done, reason, before and, unless the record is gone, after.
Both records have the members that 'semel records list' prints.`

func illegal(format string, args ...any) error {
	return &semel.Error{Code: semel.CodeIllegalTransition, Message: fmt.Sprintf(format, args...)}
}

func checkHeld(rec *semel.Record) error {
	if !rec.Held {
		return illegal("the record %s is %s, not held", printable(rec.ID.Key), stateOf(rec))
	}
	return nil
}

func newRecordsRelease(from *recordsFrom) *cobra.Command {
	c := &recordChanger{change: change[semel.Record]{from: from}}
	cmd := &cobra.Command{
		Use:   "release [NAME | --all QUALIFIER...]",
		Short: "Let a held record run again, although its work may have been done",
		Long: `Let the next delivery of a held record run again. Nobody knows what the last attempt
did, so its work may be done twice. If an effect has no result yet, settle that
first.

` + changeAll + changeJSON,
		Example: `  semel records release RECORD --reason 'the mail may go out twice'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			check := func(rec *semel.Record) error {
				if err := checkHeld(rec); err != nil {
					return err
				}
				if name, open := verdict.OpenEffect(rec); open {
					return illegal("effect %s has no result: say what happened with 'semel records settle --effect'", printable(name))
				}
				return nil
			}
			return c.apply(cmd, args, c, c.settle("release", "the next delivery runs again, and what this attempt did may happen twice.",
				&semel.Settlement{Outcome: semel.DispositionAbandoned}, check))
		},
	}
	c.flags(cmd, allHeld)
	return cmd
}

func newRecordsConfirm(from *recordsFrom) *cobra.Command {
	c := &recordChanger{change: change[semel.Record]{from: from}}
	cmd := &cobra.Command{
		Use:   "confirm [NAME]",
		Short: "Confirm a call that waits for its confirmation",
		Long: `Confirm a call whose operation asks for a person's yes, when its caller can't bring
that. Nothing has run yet. The caller then sends the same call again, without a token,
and it runs once. The confirmation is good for as long as the operation's tokens are, 5
minutes at most. If the operation asks for a further proof, only the caller can confirm.

` + changeJSON,
		Example: `  semel records confirm RECORD --reason 'she said yes on the phone'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			check := func(rec *semel.Record) error {
				if v := verdictOf(rec); v.State != verdict.Unconfirmed {
					return illegal("the record %s doesn't wait for a confirmation: it is %s", printable(rec.ID.Key), v.State.Words())
				}
				return nil
			}
			return c.apply(cmd, args, c, action[semel.Record]{"confirm", "the call runs once, when its caller sends it again.", check,
				func(ctx context.Context, recs client.Records, rec *semel.Record) (*semel.Record, error) {
					after, err := recs.Confirm(ctx, rec.ID, rec.Fence, localName(), c.reason)
					return &after, err
				}})
		},
	}
	c.name.flags(cmd)
	c.change.flags(cmd, "")
	return cmd
}

func newRecordsPurge(from *recordsFrom) *cobra.Command {
	c := &recordChanger{change: change[semel.Record]{from: from}}
	var erase bool
	cmd := &cobra.Command{
		Use:   "purge [NAME]",
		Short: "Delete a record before its window is over",
		Long: `Delete a record before its window is over, if its attempt has ended. The next
delivery of the call is a new one and runs again. If the operation archives its
records, this one is archived first.

The evidence log still has the record's key and principal. --erase-evidence erases
them there, and who changed the record and why; what happened can still be proved.

` + changeJSON,
		Example: `  semel records purge RECORD --reason 'the customer asked for it' --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			check := func(rec *semel.Record) error {
				if !rec.State.Terminal() {
					return illegal("the record %s is %s: only a record whose attempt has ended can be purged", printable(rec.ID.Key), stateOf(rec))
				}
				return nil
			}
			return c.apply(cmd, args, c, action[semel.Record]{"purge", "the record is deleted, and the next delivery of the call runs again.", check,
				func(ctx context.Context, recs client.Records, rec *semel.Record) (*semel.Record, error) {
					return nil, recs.Purge(ctx, rec.ID, semel.Removal{Reason: c.reason, Who: localName(), Fence: rec.Fence, Force: c.force, EraseEvidence: erase})
				}})
		},
	}
	cmd.Flags().BoolVar(&erase, "erase-evidence", false, "also erase what the evidence log says about it in plain text")
	c.flags(cmd, "")
	return cmd
}
