package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
)

// applyAll is apply for every held record that the qualifiers in args select. All are
// shown and confirmed together; then they are changed one by one. One that can't be
// changed, because it has an open effect or somebody else was faster, is told, and the
// others go on. A crash in between leaves the rest held: the same command finds them.
func (c *recordChanger) applyAll(cmd *cobra.Command, args []string, action, means string, check func(*semel.Record) error,
	do func(ctx context.Context, recs client.Records, id semel.ID) (*semel.Record, error),
) error {
	q, err := parseQuery(args)
	if err != nil {
		return err
	}
	q.Held = true
	if c.name.given(cmd) {
		return usage("--all takes qualifiers, such as operation:NAME, instead of one record's name")
	}
	if err := c.check(cmd, "records"); err != nil {
		return err
	}
	return c.from.with(cmd, func(ctx context.Context, recs client.Records) error {
		var found []recordLine
		var ids []semel.ID
		left := 0
		table := newLister(cmd.ErrOrStderr(), false, "", false).table
		_, err := eachFound(ctx, recs, q, 0, warner(cmd), func(rec *semel.Record) error {
			if err := check(rec); err != nil {
				left++
				warner(cmd)(fmt.Errorf("%s stays held: %w", rec.ID.Encode(), err))
				return nil
			}
			ids, found = append(ids, rec.ID), append(found, lineOf(rec))
			table.row("", rec)
			return nil
		})
		if err != nil {
			return err
		}
		goOn := false
		if len(ids) > 0 {
			show := func(io.Writer) error { return table.flush() }
			if goOn, err = c.ask(cmd, fmt.Sprintf("%s %d records", action, len(ids)), means, show); err != nil {
				return err
			}
		}
		done := 0
		bar := newProgress(c.from, cmd.ErrOrStderr(), len(ids))
		for i, id := range ids {
			out := changedRecord{Action: action, Reason: c.reason, Before: found[i]}
			if goOn {
				after, err := do(ctx, recs, id)
				if err != nil {
					left++
					bar.clear()
					warner(cmd)(fmt.Errorf("%s: %w", id.Encode(), err))
					continue
				}
				done++
				bar.done(i + 1)
				out.Done, out.After = true, new(lineOf(after))
			}
			if c.asJSON {
				bar.clear()
				if err := newEncoder(cmd.OutOrStdout()).Encode(&out); err != nil {
					return err
				}
			}
		}
		bar.clear()
		if !c.asJSON {
			text := fmt.Sprintf("%d records are changed.", done)
			if !goOn && len(ids) > 0 {
				text = fmt.Sprintf("Nothing was changed: %d records would be.", len(ids))
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		if left > 0 {
			return illegal("%d records could not be changed", left)
		}
		return nil
	})
}
