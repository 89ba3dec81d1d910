package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

func newMessages(from *recordsFrom) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "messages",
		Short: "List messages of completed calls, and replay or discard parked ones",
		Long: `List the messages that completed calls send, show one, and replay or discard parked
ones: messages that the receiver refused, that were tried too often, or are too old.

` + recordsLong,
	}, newMessagesList(from), newMessagesShow(from), newMessagesReplay(from), newMessagesDiscard(from))
	from.source.add(cmd.PersistentFlags())
	return cmd
}

// messageLine is what --json prints of a message: the identity of its call, as the record's
// JSON has it, and the message itself.
type messageLine struct {
	Record string `json:"record"`
	wire.Owner
	Operation string `json:"operation"`
	Key       string `json:"idempotency_key"`
	wire.Outgoing
	Payload *string `json:"payload_base64,omitempty"`
}

func messageLineOf(f *dispatch.Found) messageLine {
	id := &f.Call
	return messageLine{id.Encode(), wire.OwnerOf(id), id.Operation, id.Key, wire.OutgoingOf(&f.Message), wire.Base64(f.Message.Payload)}
}

const messageFields = `record (the id of its record) and that record's tenant, principal, scope, operation
and idempotency_key; id, name, destination, content_type, payload_bytes, payload_base64,
order, state, tries, next_at, created_at, settled_at and error (code, message). Members
that don't apply are left out. A service doesn't show payloads`

const messageRecord = "any `name` of the record that has the message"

// messageStates are the words of --state.
var messageStates = []store.MessageState{store.MessagePending, store.MessageParked, store.MessageDelivered, store.MessageDiscarded}

func newMessagesList(from *recordsFrom) *cobra.Command {
	var limit int
	var states []string
	var q dispatch.Query
	cmd := &cobra.Command{
		Use:               "list [QUALIFIER...]",
		ValidArgsFunction: completeQualifiers,
		Short:             "List messages, newest calls first",
		Long: `List the pending and parked messages of records that match all of these qualifiers,
newest calls first:
` + qualifiers + `

Messages have no index of their own: this reads every record that the qualifiers select.

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
				return usage("--limit is %d; it must be at least 1", limit)
			}
			if q.States, err = parseStates(states); err != nil {
				return err
			}
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				return listMessages(ctx, cmd, recs, q, limit)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Destination, "destination", "", "only messages to this `destination`")
	flags.StringSliceVar(&states, "state", nil, "only this `state`: pending, parked, delivered or discarded")
	flags.IntVar(&limit, "limit", store.DefaultSearchLimit, "how many to list at most")
	return jsonFlag(cmd)
}

func parseStates(words []string) (states []store.MessageState, err error) {
	for _, word := range words {
		if !slices.Contains(messageStates, store.MessageState(word)) {
			return nil, usage("--state is %q, not pending, parked, delivered or discarded", word)
		}
		states = append(states, store.MessageState(word))
	}
	return states, nil
}

// messageTable shows messages to people, one in a row.
type messageTable struct{ *tabwriter.Writer }

func newMessageTable(out io.Writer) messageTable {
	w := newTable(out)
	fmt.Fprintln(w, "CREATED\tSTATE\tTRIES\tDESTINATION\tOPERATION\tKEY\tNEXT\tFAILURE\tMESSAGE")
	return messageTable{w}
}

func (t messageTable) row(f *dispatch.Found) {
	m, why := &f.Message, ""
	if m.Failure != nil {
		why = failureLine(m.Failure)
	}
	fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", when(m.CreatedAt), m.State, m.Tries, printable(m.Destination),
		printable(f.Call.Operation), printable(f.Call.Key), when(m.NextAt), short(why, maxFailure), m.ID)
}

func listMessages(ctx context.Context, cmd *cobra.Command, recs client.Records, q dispatch.Query, limit int) error {
	enc, out := newEncoder(cmd.OutOrStdout()), cmd.OutOrStdout()
	if asJSON(cmd) {
		out = io.Discard
	}
	table, rows := newMessageTable(out), 0
	for f, err := range dispatch.Find(ctx, recs, q) {
		if err != nil {
			return err
		}
		if rows++; rows > limit {
			fmt.Fprintln(cmd.ErrOrStderr(), "There are more: raise --limit")
			break
		}
		if table.row(&f); asJSON(cmd) {
			if err := enc.Encode(messageLineOf(&f)); err != nil {
				return err
			}
		}
	}
	return table.Flush()
}

// maxFailure is how much of a failure a line of a list has, in characters.
const maxFailure = 80

// failureLine is the code of a failure, and what its text says beyond it.
func failureLine(f *store.Failure) string {
	text := strings.TrimPrefix(f.Message, strings.ReplaceAll(f.Code, "_", " "))
	if text = strings.TrimPrefix(text, ": "); text == "" {
		return f.Code
	}
	return f.Code + ": " + text
}

// findMessage finds a message by its id: in the record, if that has a name, or else in all.
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
	if id := first(args); !strings.HasPrefix(id, "msg_") {
		return "", usage("%q is not the id of a message, which begins with msg_; 'semel messages list' shows them", id)
	}
	return args[0], atMost(1, cmd, args)
}

func newMessagesShow(from *recordsFrom) *cobra.Command {
	var record string
	cmd := &cobra.Command{
		Use:   "show MESSAGE",
		Short: "Show one message",
		Long: `Show one message. Without --record, this reads records until it finds the message.

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
				show := func(w io.Writer) error { return printMessage(w, &f, from.source.service == "") }
				return printReport(cmd, messageLineOf(&f), show, false)
			})
		},
	}
	cmd.Flags().StringVar(&record, "record", "", messageRecord)
	return jsonFlag(cmd)
}

// printMessage shows a whole message to people. A service doesn't show payloads.
func printMessage(out io.Writer, f *dispatch.Found, payload bool) error {
	l := newLabels(out)
	m := &f.Message
	l.line("message", "%s", printable(m.ID))
	l.line("record", "%s", f.Call.Encode())
	l.line("operation", "%s", printable(f.Call.Operation))
	l.line("key", "%s", printable(f.Call.Key))
	l.line("tenant", "%s", printable(f.Call.Tenant))
	l.line("name", "%s", printable(m.Name))
	l.line("destination", "%s", printable(m.Destination))
	l.text("order", m.Order)
	l.line("state", "%s", m.State)
	l.line("tries", "%d", m.Tries)
	l.at("created", m.CreatedAt)
	l.at("tried next", m.NextAt)
	l.at("settled", m.SettledAt)
	l.failure("failure", m.Failure)
	l.line("content type", "%s", printable(m.ContentType))
	if payload {
		l.line("payload", "%s", brief(semel.Result{Data: m.Payload}))
	}
	return l.Flush()
}
