package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

func messagesCommand() *cobra.Command { return newMessages(newRecordsFrom()) }

func newMessages(from *recordsFrom) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "List messages of completed calls, and replay or discard those that are parked",
		Long: `List the messages that completed calls send, look at one, and decide about those
that were parked: refused by their receiver, tried too often, or too old.

` + recordsLong,
		Example: `  semel messages list --state parked
  semel messages replay --context prod --reason 'the receiver is back' MESSAGE`,
	}
	from.source.add(cmd.PersistentFlags())
	cmd.AddCommand(newMessagesList(from), newMessagesShow(from), newMessagesReplay(from), newMessagesDiscard(from))
	return cmd
}

// messageLine is what --json prints of a message: whose it is, by members that the
// record has, too, and what the record has of it.
type messageLine struct {
	Record    string `json:"record"`
	Tenant    string `json:"tenant"`
	Principal string `json:"principal"`
	Operation string `json:"operation"`
	Key       string `json:"idempotency_key"`
	wire.Outgoing
	Payload *string `json:"payload_base64,omitempty"`
}

func messageLineOf(f *dispatch.Found) messageLine {
	id := &f.Call
	return messageLine{id.Encode(), id.Tenant, id.Principal, id.Operation, id.Key, wire.OutgoingOf(&f.Message), wire.Base64(f.Message.Payload)}
}

const messageFields = `record (the id of its record), tenant, principal, operation and idempotency_key of
that; id, name, destination, content_type, payload_bytes, payload_base64, order,
state, tries, next_at, created_at, settled_at and error (code, message). What does
not apply is left out, and so is the payload of a message of a service`

// messageStates are the words of --state.
var messageStates = []store.MessageState{store.MessagePending, store.MessageParked, store.MessageDelivered, store.MessageDiscarded}

func newMessagesList(from *recordsFrom) *cobra.Command {
	var asJSON bool
	var limit int
	var states []string
	var q dispatch.Query
	cmd := &cobra.Command{
		Use:               "list [QUALIFIER...]",
		ValidArgsFunction: from.completeQualifiers,
		Short:             "List messages, those of the newest calls first",
		Long: `List messages that are pending or parked, those of the newest calls first. The
qualifiers select the records of the calls; all must apply:
` + qualifiers + `

There is no index of messages: all records that the qualifiers select are looked at.

The JSON is one object per line, with
` + messageFields + `.`,
		Example: `  semel messages list --state parked --destination billing
  semel messages list --json operation:orders.place after:2026-01-01`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.Records, err = parseQuery(args); err != nil {
				return err
			}
			if limit < 1 {
				return usage("--limit is %d, and at least 1", limit)
			}
			if q.States, err = parseStates(states); err != nil {
				return err
			}
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				return listMessages(ctx, cmd, recs, q, limit, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Destination, "destination", "", "only those to this `destination`")
	flags.StringSliceVar(&states, "state", nil, "only those in this `state`: pending, parked, delivered or discarded")
	flags.IntVar(&limit, "limit", store.DefaultSearchLimit, "list at most so many")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func parseStates(words []string) (states []store.MessageState, err error) {
	for _, word := range words {
		known := false
		for _, s := range messageStates {
			known = known || word == string(s)
		}
		if !known {
			return nil, usage("--state is %q, not pending, parked, delivered or discarded", word)
		}
		states = append(states, store.MessageState(word))
	}
	return states, nil
}

func listMessages(ctx context.Context, cmd *cobra.Command, recs client.Records, q dispatch.Query, limit int, asJSON bool) error {
	enc := newEncoder(cmd.OutOrStdout())
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintf(table, "CREATED\tSTATE\tTRIES\tDESTINATION\tNEXT\tFAILURE\tMESSAGE\n")
	}
	rows := 0
	for f, err := range dispatch.Find(ctx, recs, q) {
		if err != nil {
			return err
		}
		if rows++; rows > limit {
			fmt.Fprintf(cmd.ErrOrStderr(), "There are more: raise --limit\n")
			break
		}
		if asJSON {
			if err := enc.Encode(messageLineOf(&f)); err != nil {
				return err
			}
			continue
		}
		m := &f.Message
		why := ""
		if m.Failure != nil {
			why = m.Failure.Code
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", when(m.CreatedAt), m.State, m.Tries, printable(m.Destination), when(m.NextAt), printable(why), m.ID)
	}
	return table.Flush()
}

// findMessage looks for a message by its id, in one record where that is named too, by any
// name that it has.
func findMessage(ctx context.Context, recs client.Records, id, record string) (found dispatch.Found, err error) {
	if record != "" {
		named := recordName{name: record}
		rec, err := named.findOnly(ctx, recs)
		if err != nil {
			return found, err
		}
		for _, m := range rec.Outbox {
			if m.ID == id {
				return dispatch.Found{Call: rec.ID, Message: m}, nil
			}
		}
		return found, notFound("no message of that call has the id %s", printable(id))
	}
	for f, err := range dispatch.Find(ctx, recs, dispatch.Query{ID: id, States: messageStates}) {
		return f, err
	}
	return found, notFound("no message has the id %s", printable(id))
}

// oneMessage is the argument of the commands on one message.
func oneMessage(cmd *cobra.Command, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", usage("which message? 'semel messages list' has their ids")
	case len(args) > 1:
		return "", usage("unexpected argument %q for %q", args[1], cmd.CommandPath())
	case !strings.HasPrefix(args[0], "msg_"):
		return "", usage("%q is not the id of a message, which begins with msg_", args[0])
	}
	return args[0], nil
}

func newMessagesShow(from *recordsFrom) *cobra.Command {
	var asJSON bool
	var record string
	cmd := &cobra.Command{
		Use:   "show MESSAGE",
		Short: "Show one message",
		Long: `Show one message. Without --record all records are looked at until it is found.

The JSON has
` + messageFields + `.`,
		Example: `  semel messages show MESSAGE`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := oneMessage(cmd, args)
			if err != nil {
				return err
			}
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				f, err := findMessage(ctx, recs, id, record)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), messageLineOf(&f))
				}
				return printMessage(cmd.OutOrStdout(), &f, from.source.service == "")
			})
		},
	}
	cmd.Flags().StringVar(&record, "record", "", "`name` of the record that has the message")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// printMessage shows all of a message to people. A service does not show payloads.
func printMessage(out io.Writer, f *dispatch.Found, payload bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	m := &f.Message
	line("message", "%s", printable(m.ID))
	line("record", "%s", f.Call.Encode())
	line("operation", "%s", printable(f.Call.Operation))
	line("key", "%s", printable(f.Call.Key))
	line("tenant", "%s", printable(f.Call.Tenant))
	line("name", "%s", printable(m.Name))
	line("destination", "%s", printable(m.Destination))
	if m.Order != "" {
		line("order", "%s", printable(m.Order))
	}
	line("state", "%s", m.State)
	line("tries", "%d", m.Tries)
	for _, at := range []struct {
		name string
		at   store.Instant
	}{{"created", m.CreatedAt}, {"tried next", m.NextAt}, {"settled", m.SettledAt}} {
		if at.at != 0 {
			line(at.name, "%s", at.at)
		}
	}
	if m.Failure != nil {
		line("failure", "%s: %s", printable(m.Failure.Code), printable(m.Failure.Message))
	}
	line("content type", "%s", printable(m.ContentType))
	if payload {
		line("payload", "%s", brief(semel.Result{Data: m.Payload}))
	}
	return w.Flush()
}
