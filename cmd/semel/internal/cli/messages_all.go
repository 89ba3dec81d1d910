package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/store"
)

// applyAll is apply for every parked message of the calls that the qualifiers in args select.
// All are shown and confirmed together; then they are changed one by one, the oldest first, so
// that those with an order stay in it. One that can't be changed is told, and the others go
// on. A crash in between leaves the rest parked: the same command finds them.
func (c *messageChanger) applyAll(cmd *cobra.Command, args []string, action, means string,
	do func(ctx context.Context, s dispatch.Settler, f *dispatch.Found) error,
) error {
	q, err := parseQuery(args)
	switch {
	case err != nil:
		return err
	case c.record != "":
		return usage("--all takes qualifiers, such as operation:NAME, instead of --record")
	}
	if err := c.check(cmd, "messages"); err != nil {
		return err
	}
	return c.from.with(cmd, func(ctx context.Context, recs client.Records) error {
		s, err := settler(recs)
		if err != nil {
			return err
		}
		var found []dispatch.Found
		for f, err := range dispatch.Find(ctx, recs, dispatch.Query{Records: q, Destination: c.destination, States: []store.MessageState{store.MessageParked}}) {
			if err != nil {
				return err
			}
			found = append(found, f)
		}
		slices.SortStableFunc(found, func(a, b dispatch.Found) int { return cmp.Compare(a.Message.CreatedAt, b.Message.CreatedAt) })
		goOn := false
		if len(found) > 0 {
			if goOn, err = c.ask(cmd, fmt.Sprintf("%s %d messages", action, len(found)), means, func(w io.Writer) error { return printParked(w, found) }); err != nil {
				return err
			}
		}
		done, left := 0, 0
		bar := newProgress(c.from, cmd.ErrOrStderr(), len(found))
		for i := range found {
			f := &found[i]
			if goOn {
				if err := do(ctx, s, f); err != nil {
					left++
					bar.clear()
					warner(cmd)(fmt.Errorf("%s: %w", f.Message.ID, err))
					continue
				}
				done++
				bar.done(i + 1)
			}
			if c.asJSON {
				bar.clear()
				if err := newEncoder(cmd.OutOrStdout()).Encode(&changedMessage{action, goOn, c.reason, messageLineOf(f)}); err != nil {
					return err
				}
			}
		}
		bar.clear()
		if !c.asJSON {
			text := fmt.Sprintf("%d messages are changed.", done)
			if !goOn && len(found) > 0 {
				text = fmt.Sprintf("Nothing was changed: %d messages would be.", len(found))
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		if left > 0 {
			return illegal("%d messages could not be changed", left)
		}
		return nil
	})
}

// printParked shows messages to people, one in a row.
func printParked(out io.Writer, found []dispatch.Found) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CREATED\tTRIES\tDESTINATION\tOPERATION\tKEY\tFAILURE\tMESSAGE")
	for i := range found {
		f, why := &found[i], ""
		if f.Message.Failure != nil {
			why = f.Message.Failure.Code
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", when(f.Message.CreatedAt), f.Message.Tries, printable(f.Message.Destination), printable(f.Call.Operation), printable(f.Call.Key), printable(why), f.Message.ID)
	}
	return w.Flush()
}
