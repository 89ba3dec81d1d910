package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/store"
)

// messageChanger is the common part of the commands that change a message.
type messageChanger struct {
	change[dispatch.Found]
	record      string
	destination string // of the messages, for all
}

func (c *messageChanger) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.record, "record", "", "`name` of the record that has the message")
	cmd.Flags().StringVar(&c.destination, "destination", "", "with --all, only those to this `destination`")
	c.change.flags(cmd, "look later", "every parked message of the calls that qualifiers select")
}

// changedMessage is what --json prints of a change.
type changedMessage struct {
	changeHead
	// Message is as it was.
	Message messageLine `json:"message"`
}

const messageChangeJSON = `With --all, every parked message of the calls that the qualifiers of 'semel records
list' select is changed, after one question about all of them; --dry-run only shows
them. What can't be changed is told, and the rest goes on. The JSON is then one object
per line.

The JSON has action, done, reason and message, which is as it was, with the members
that list has.`

func (c *messageChanger) words() (noun, state string) { return "message", "parked" }

func (c *messageChanger) named(cmd *cobra.Command, args []string) (func(ctx context.Context, recs client.Records) (*dispatch.Found, error), error) {
	if c.destination != "" {
		return nil, usage("--destination needs --all")
	}
	id, err := oneMessage(cmd, args)
	return func(ctx context.Context, recs client.Records) (*dispatch.Found, error) {
		f, err := findMessage(ctx, recs, id, c.record)
		return &f, err
	}, err
}

func (c *messageChanger) mayAll(*cobra.Command) error {
	if c.record != "" {
		return usage("--all takes qualifiers, such as operation:NAME, instead of --record")
	}
	return nil
}

// search has the oldest first, so that messages with an order stay in it.
func (c *messageChanger) search(ctx context.Context, _ *cobra.Command, recs client.Records, q store.Query, each func(*dispatch.Found)) error {
	var found []*dispatch.Found
	for f, err := range dispatch.Find(ctx, recs, dispatch.Query{Records: q, Destination: c.destination, States: []store.MessageState{store.MessageParked}}) {
		if err != nil {
			return err
		}
		found = append(found, &f)
	}
	slices.SortStableFunc(found, func(a, b *dispatch.Found) int { return cmp.Compare(a.Message.CreatedAt, b.Message.CreatedAt) })
	for _, f := range found {
		each(f)
	}
	return nil
}

func (c *messageChanger) id(f *dispatch.Found) string { return f.Message.ID }

func (c *messageChanger) show(w io.Writer, f *dispatch.Found) error {
	return printMessage(w, f, c.from.source.service == "")
}

func (c *messageChanger) list(out io.Writer, found []*dispatch.Found) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CREATED\tTRIES\tDESTINATION\tOPERATION\tKEY\tFAILURE\tMESSAGE")
	for _, f := range found {
		why := ""
		if f.Message.Failure != nil {
			why = f.Message.Failure.Code
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", when(f.Message.CreatedAt), f.Message.Tries, printable(f.Message.Destination), printable(f.Call.Operation), printable(f.Call.Key), printable(why), f.Message.ID)
	}
	return w.Flush()
}

func (c *messageChanger) line(head changeHead, f *dispatch.Found, _ *semel.Record) any {
	return &changedMessage{head, messageLineOf(f)}
}

func (c *messageChanger) done(action string, _ *semel.Record) string {
	if action == "replay" {
		return "The message is pending."
	}
	return "The message is discarded."
}

// settle is the action that decides about parked messages, by [dispatch.Replay] or [dispatch.Discard].
func (c *messageChanger) settle(name, means string,
	f func(ctx context.Context, s dispatch.Settler, call semel.ID, id, reason string) (semel.Record, error),
) action[dispatch.Found] {
	parked := func(f *dispatch.Found) error {
		if f.Message.State != store.MessageParked {
			return illegal("the message is %s, not parked", f.Message.State)
		}
		return nil
	}
	return action[dispatch.Found]{name, means, parked, func(ctx context.Context, recs client.Records, of *dispatch.Found) (*semel.Record, error) {
		s, err := settler(recs)
		if err != nil {
			return nil, err
		}
		rec, err := f(ctx, s, of.Call, of.Message.ID, c.reason)
		return &rec, err
	}}
}

// settler is what settles the messages of records.
func settler(recs client.Records) (dispatch.Settler, error) {
	switch recs := recs.(type) {
	case interface{ Internal() semel.Internal }: // an engine in this process
		return recs.Internal(), nil
	case dispatch.Settler:
		return recs, nil
	}
	return nil, errors.New("these records can't be changed")
}

func newMessagesReplay(from *recordsFrom) *cobra.Command {
	c := &messageChanger{change: change[dispatch.Found]{from: from}}
	cmd := &cobra.Command{
		Use:               "replay [MESSAGE | --all QUALIFIER...]",
		ValidArgsFunction: from.completeQualifiers,
		Short:             "Have a parked message delivered again",
		Long: `Have a parked message delivered again, as if it had not been tried, under the same
id. The receiver may have handled it before. One with an order goes to the end of its
line. Of a directory, the service delivers it when it is started. The reason is kept
with the message until its next try.

` + messageChangeJSON,
		Example: `  semel messages replay MESSAGE --reason 'the receiver is back'
  semel messages replay --all after:2h --destination billing --reason 'it is back' --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.apply(cmd, args, c, c.settle("replay", "the message is delivered again, under the same id.", dispatch.Replay))
		},
	}
	c.flags(cmd)
	return cmd
}

func newMessagesDiscard(from *recordsFrom) *cobra.Command {
	c := &messageChanger{change: change[dispatch.Found]{from: from}}
	cmd := &cobra.Command{
		Use:               "discard [MESSAGE | --all QUALIFIER...]",
		ValidArgsFunction: from.completeQualifiers,
		Short:             "Give a parked message up for good",
		Long: `Give a parked message up for good. The record of its call can then expire. The
reason is kept with the message.

` + messageChangeJSON,
		Example: `  semel messages discard MESSAGE --reason 'told them by telephone'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.apply(cmd, args, c, c.settle("discard", "the message is given up and never delivered.", dispatch.Discard))
		},
	}
	c.flags(cmd)
	return cmd
}
