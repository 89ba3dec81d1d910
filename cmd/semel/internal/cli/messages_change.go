package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/store"
)

// messageChanger is the common part of the commands that change a message.
type messageChanger struct {
	change
	record      string
	destination string // of the messages, for all
	all         bool   // every parked one that qualifiers select, instead of one message
}

func (c *messageChanger) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.record, "record", "", "`name` of the record that has the message")
	cmd.Flags().BoolVar(&c.all, "all", false, "every parked message of the calls that qualifiers select")
	cmd.Flags().StringVar(&c.destination, "destination", "", "with --all, only those to this `destination`")
	c.change.flags(cmd, "look later")
}

// changedMessage is what --json prints of a change.
type changedMessage struct {
	// Action is "replay" or "discard".
	Action string `json:"action"`
	// Done is false for a dry run.
	Done   bool   `json:"done"`
	Reason string `json:"reason"`
	// Message is as it was.
	Message messageLine `json:"message"`
}

const messageChangeJSON = `With --all, every parked message of the calls that the qualifiers of 'semel records
list' select is changed, after one question about all of them; --dry-run only shows
them. What can't be changed is told, and the rest goes on. The JSON is then one object
per line.

The JSON has action, done, reason and message, which is as it was, with the members
that list has.`

// apply shows a parked message, asks for confirmation, and changes it.
func (c *messageChanger) apply(cmd *cobra.Command, args []string, action, means string,
	do func(ctx context.Context, s dispatch.Settler, f *dispatch.Found) error,
) error {
	switch {
	case c.all:
		return c.applyAll(cmd, args, action, means, do)
	case c.destination != "":
		return usage("--destination needs --all")
	}
	id, err := oneMessage(cmd, args)
	if err == nil {
		err = c.check(cmd, "message")
	}
	if err != nil {
		return err
	}
	return c.from.with(cmd, func(ctx context.Context, recs client.Records) error {
		s, err := settler(recs)
		if err != nil {
			return err
		}
		f, err := findMessage(ctx, recs, id, c.record)
		if err != nil {
			return err
		}
		if f.Message.State != store.MessageParked {
			return illegal("the message is %s, not parked", f.Message.State)
		}
		goOn, err := c.ask(cmd, action, means, func(w io.Writer) error { return printMessage(w, &f, c.from.source.service == "") })
		if err == nil && goOn {
			err = do(ctx, s, &f)
		}
		if err != nil {
			return err
		}
		return c.report(cmd, &changedMessage{action, goOn, c.reason, messageLineOf(&f)})
	})
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

func (c *messageChanger) report(cmd *cobra.Command, done *changedMessage) error {
	w := cmd.OutOrStdout()
	if c.asJSON {
		return printJSON(w, done)
	}
	sentence := "Nothing was changed: this was a dry run."
	switch {
	case done.Done && done.Action == "replay":
		sentence = "The message is pending."
	case done.Done:
		sentence = "The message is discarded."
	}
	_, err := fmt.Fprintln(w, sentence)
	return err
}

func newMessagesReplay(from *recordsFrom) *cobra.Command {
	c := &messageChanger{change: change{from: from}}
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
			return c.apply(cmd, args, "replay", "the message is delivered again, under the same id.",
				func(ctx context.Context, s dispatch.Settler, f *dispatch.Found) error {
					_, err := dispatch.Replay(ctx, s, f.Call, f.Message.ID, c.reason)
					return err
				})
		},
	}
	c.flags(cmd)
	return cmd
}

func newMessagesDiscard(from *recordsFrom) *cobra.Command {
	c := &messageChanger{change: change{from: from}}
	cmd := &cobra.Command{
		Use:               "discard [MESSAGE | --all QUALIFIER...]",
		ValidArgsFunction: from.completeQualifiers,
		Short:             "Give a parked message up for good",
		Long: `Give a parked message up for good. The record of its call can then expire. The
reason is kept with the message.

` + messageChangeJSON,
		Example: `  semel messages discard MESSAGE --reason 'told them by telephone'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.apply(cmd, args, "discard", "the message is given up and never delivered.",
				func(ctx context.Context, s dispatch.Settler, f *dispatch.Found) error {
					_, err := dispatch.Discard(ctx, s, f.Call, f.Message.ID, c.reason)
					return err
				})
		},
	}
	c.flags(cmd)
	return cmd
}
