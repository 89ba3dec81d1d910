package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

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

// changedMessage is what --json prints of a change.
type changedMessage struct {
	changeHead
	// Message is as it was before.
	Message messageLine `json:"message"`
}

const messageChangeJSON = `

` + changeAll + `The JSON has action, done, reason and message, which is as it was before, with the
members that 'semel messages list' prints.`

func (c *messageChanger) words() (noun, state string) { return "message", "parked" }

func (c *messageChanger) finder(cmd *cobra.Command, args []string, all bool) (func(ctx context.Context, recs client.Records) ([]*dispatch.Found, error), error) {
	if !all {
		id, err := oneMessage(cmd, args)
		if c.destination != "" {
			err = usage("--destination needs --all")
		}
		return func(ctx context.Context, recs client.Records) ([]*dispatch.Found, error) {
			f, err := findMessage(ctx, recs, id, c.record)
			return []*dispatch.Found{&f}, err
		}, err
	}
	q, err := parseQuery(args)
	if err == nil && c.record != "" {
		err = usage("--all takes qualifiers, such as operation:NAME, instead of --record")
	}
	return func(ctx context.Context, recs client.Records) (found []*dispatch.Found, err error) {
		for f, err := range dispatch.Find(ctx, recs, dispatch.Query{Records: q, Destination: c.destination, States: []store.MessageState{store.MessageParked}}) {
			if err != nil {
				return nil, err
			}
			found = append(found, &f)
		}
		// Oldest first, so that messages with an order stay in it.
		slices.SortStableFunc(found, func(a, b *dispatch.Found) int { return cmp.Compare(a.Message.CreatedAt, b.Message.CreatedAt) })
		return found, nil
	}, err
}

func (c *messageChanger) id(f *dispatch.Found) string { return f.Message.ID }

func (c *messageChanger) show(w io.Writer, f *dispatch.Found) error {
	return printMessage(w, f, c.from.source.service == "")
}

func (c *messageChanger) list(out io.Writer, found []*dispatch.Found) error {
	table := newMessageTable(out)
	for _, f := range found {
		table.row(f)
	}
	return table.Flush()
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

// settleMessage is [dispatch.Replay] or [dispatch.Discard].
type settleMessage func(ctx context.Context, s dispatch.Settler, call semel.ID, id, reason string) (semel.Record, error)

// newMessagesChange completes a command that settles parked messages.
func newMessagesChange(from *recordsFrom, cmd *cobra.Command, means string, settle settleMessage) *cobra.Command {
	c := &messageChanger{change: change[dispatch.Found]{from: from}}
	act := action[dispatch.Found]{name: cmd.Name(), means: means, check: func(f *dispatch.Found) error {
		if f.Message.State != store.MessageParked {
			return illegal("the message is %s, not parked", f.Message.State)
		}
		return nil
	}}
	act.do = func(ctx context.Context, recs client.Records, of *dispatch.Found) (*semel.Record, error) {
		s, err := settler(recs)
		if err != nil {
			return nil, err
		}
		rec, err := settle(ctx, s, of.Call, of.Message.ID, c.reason)
		return &rec, err
	}
	cmd.Use += " [MESSAGE | --all QUALIFIER...]"
	cmd.Long += messageChangeJSON
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.apply(cmd, args, c, act) }
	cmd.Flags().StringVar(&c.record, "record", "", messageRecord)
	cmd.Flags().StringVar(&c.destination, "destination", "", "with --all, only messages to this `destination`")
	c.change.flags(cmd, "every parked message of the calls that the qualifiers select")
	return cmd
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
	return newMessagesChange(from, &cobra.Command{
		Use:   "replay",
		Short: "Replay a parked message",
		Long: `Replay a parked message: deliver it again under the same id, with its tries counted
from zero. The receiver may have handled it before. A message with an order goes to
the end of its queue. If you name a store that no service has open, it is delivered
when the service starts. The reason stays with the message until its next try.`,
		Example: `  semel messages replay MESSAGE --reason 'the receiver is back'
  semel messages replay --all after:2h --destination billing --reason 'it is back' --dry-run`,
	}, "the message is delivered again, under the same id.", dispatch.Replay)
}

func newMessagesDiscard(from *recordsFrom) *cobra.Command {
	return newMessagesChange(from, &cobra.Command{
		Use:   "discard",
		Short: "Discard a parked message",
		Long: `Discard a parked message, so that the record of its call can expire. The reason stays
with the message.`,
		Example: `  semel messages discard MESSAGE --reason 'told them on the phone'`,
	}, "the message is discarded and not delivered.", dispatch.Discard)
}
