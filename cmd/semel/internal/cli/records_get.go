package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// recordName names one record on a command line: by any name that its call has, or by the
// members of its identity.
type recordName struct {
	id   semel.ID
	name string // any name but a whole identity
	look bool   // the record isn't changed, so a guess at its name will do
}

const recordNames = `by any of its names: its key; its id, as lists show it; the
reference, instance or status_url of a problem document; an execution; the record of
a log line; an attribute, as in order=9911 or order=99*; the command id, request id,
correlation id or event id of its first delivery; the request id of a recent duplicate;
a trace, a message or the key of an effect`
const valueToo = ";\nor the value of any attribute, such as 9911" // follows it in the help of commands that only look

func (n *recordName) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&n.id.Operation, "operation", "", "`operation` of the record, instead of its name")
	flags.StringVar(&n.id.Key, "key", "", "its `key`")
	flags.StringVar(&n.id.Tenant, "tenant", "", "its `tenant`, if several have used the key")
	flags.StringVar(&n.id.Principal, "principal", "", "its `principal`, if several have used the key")
}

// given reports whether the command line has a member of the identity.
func (n *recordName) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"operation", "key", "tenant", "principal"}, cmd.Flags().Changed)
}

// parse reads the name from the command line.
func (n *recordName) parse(cmd *cobra.Command, args []string) (semel.ID, error) {
	members := n.given(cmd)
	if err := atMost(1, cmd, args); err != nil {
		return semel.ID{}, err
	}
	switch {
	case len(args) == 1 && members:
		return semel.ID{}, usage("give either a record's name, or the members of its identity")
	case first(args) != "":
		if q, ok := lookup.Name(args[0]); ok && q.Tenant != nil {
			return semel.ID{Tenant: *q.Tenant, Principal: q.Principal, Operation: q.Operation, Key: q.Key}, nil
		}
		n.name = args[0]
		return semel.ID{}, nil
	case n.id.Operation == "" || n.id.Key == "":
		return semel.ID{}, usage("which record? Give its name, or --operation and --key")
	}
	return n.id, nil
}

// find looks a record up. By operation and key alone it finds the record of any tenant and
// principal, if there is just one.
func (n *recordName) find(ctx context.Context, cmd *cobra.Command, recs client.Records, id semel.ID) (semel.Record, error) {
	if n.name != "" {
		return n.findOnly(ctx, recs)
	}
	rec, err := recs.Lookup(ctx, id)
	if !errors.Is(err, semel.ErrNotFound) || cmd.Flags().NArg() > 0 || cmd.Flags().Changed("tenant") || cmd.Flags().Changed("principal") {
		return rec, err
	}
	found, more, serr := lookup.Some(ctx, recs, store.Query{Operation: id.Operation, Key: id.Key}, maxNamesakes)
	switch {
	case errors.Is(serr, &semel.Error{Code: semel.CodeForbidden}), errors.Is(serr, &semel.Error{Code: door.CodeUnauthorized}):
		return rec, err // the better error: they may only see their own
	case serr != nil:
		return rec, serr // nobody knows whether another caller has the record
	}
	switch len(found) {
	case 0:
		return rec, notFound("no record of the operation %s has the key %s; 'semel why %s' finds it in every operation", printable(id.Operation), printable(id.Key), shellWord(id.Key))
	case 1:
		return found[0], nil
	}
	return rec, ambiguous("several callers have used the key %s; give the name of the record you mean:", id.Key, found, more)
}

// ambiguous says that a name has several records, and lists them.
func ambiguous(format, name string, found []semel.Record, more bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, format, printable(name))
	for i := range found {
		rec, owner := &found[i], wire.OwnerOf(&found[i].ID)
		fmt.Fprintf(&b, "\n  %s  %s, key %s, tenant %q, principal %q, ", rec.ID.Encode(), printable(rec.ID.Operation), printable(rec.ID.Key), owner.Tenant, owner.Principal)
		if owner.Scope != "" {
			fmt.Fprintf(&b, "scope %q, ", owner.Scope)
		}
		b.WriteString(stateOf(rec))
	}
	if more {
		b.WriteString("\n  and more")
	}
	return usage("%s", b.String())
}

// findOnly finds the record that has a name, if only one has it.
func (n *recordName) findOnly(ctx context.Context, recs client.Records) (semel.Record, error) {
	all, err := find(ctx, recs, n.name, n.look)
	if err != nil {
		return semel.Record{}, err
	}
	found, more := all.Newest(maxNamesakes)
	if len(all.Found) == 1 {
		return found[0], nil
	}
	return semel.Record{}, ambiguous("several calls have the name %s; say which one you mean:", n.name, found, more)
}

func newRecordsGet(from *recordsFrom) *cobra.Command {
	name := recordName{look: true}
	cmd := &cobra.Command{
		Use:   "get [NAME]",
		Short: "Show one record",
		Long: `Show one record. Name it ` + recordNames + valueToo + `.
Or give the members of its identity; operation and key will do if only one caller has
used them.

The JSON is the record as the API has it: id (its name for other commands), tenant,
principal, scope, door, idempotency_key, operation, bound_to, payload_hash, status,
disposition, held, held_reason, result or result_base64, result_kept, error (code,
message), settled (by, who, reason, at), fence, attempt, holder, created_at,
updated_at, started_at, ended_at, lease_until, expires_at, attempts, effects,
attributes, confirmation, messages (a service leaves out payload_bytes),
compensation, decisions and verdict (state, says, retry and the numbers behind it). If the
result is an HTTP answer, answer has its status, headers, and body or body_base64.
Members that don't apply are left out.`,
		Example: `  semel records get order-1
  semel records get --context prod --operation payments.charge --key order-1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := name.parse(cmd, args)
			if err != nil {
				return err
			}
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				rec, err := name.find(ctx, cmd, recs, id)
				if err != nil {
					return err
				}
				line := lineOf(&rec)
				if err := line.judge(ctx, recs); err != nil {
					return err
				}
				return printReport(cmd, line, func(w io.Writer) error { return printRecord(w, &rec) }, false)
			})
		},
	}
	name.flags(cmd)
	return jsonFlag(cmd)
}

// printRecord shows a whole record to people.
func printRecord(out io.Writer, rec *semel.Record) error {
	l, owner := newLabels(out), wire.OwnerOf(&rec.ID)
	l.line("record", "%s", rec.ID.Encode())
	l.line("operation", "%s", printable(rec.ID.Operation))
	l.line("key", "%s", printable(rec.ID.Key))
	l.line("tenant", "%s", printable(owner.Tenant))
	l.line("principal", "%s", printable(owner.Principal))
	l.text("scope", owner.Scope)
	l.line("state", "%s", stateOf(rec))
	l.text("held because", rec.HeldReason)
	l.line("attempt", "%d, fence %d, by %s for %s", rec.Attempt, rec.Fence, printable(rec.Holder), printable(rec.Principal))
	l.at("created", rec.CreatedAt)
	l.at("started", rec.StartedAt)
	l.at("updated", rec.UpdatedAt)
	l.at("ended", rec.EndedAt)
	l.at("leased until", rec.LeaseUntil)
	l.at("kept until", rec.ExpiresAt)
	l.failure("failure", rec.Failure)
	if rec.Settled != nil {
		l.text("decided", verdict.Decided(rec.Disposition, rec.Failure, rec.Settled))
	}
	printAnswer(l, rec)
	for i := range rec.Effects {
		ef := &rec.Effects[i]
		l.line("effect", "%s: %s%s since %s, key %s", printable(ef.Name), ef.State, saidBy(ef.Settled), when(max(ef.StartedAt, ef.SettledAt)), printable(ef.Key))
	}
	for i := range rec.Earlier {
		at := &rec.Earlier[i]
		l.line("earlier", "attempt %d, fence %d: %s%s at %s", at.Number, at.Fence, at.Disposition, saidBy(at.Settled), when(at.EndedAt))
	}
	printLater(l, rec)
	return l.Flush()
}

// printLater shows the optional parts of a record.
func printLater(l labels, rec *semel.Record) {
	if c := rec.Confirmation; c != nil {
		what := "asked for"
		if c.ConfirmedAt != 0 {
			what = "given " + when(c.ConfirmedAt)
		}
		l.line("confirmation", "%s, by %s, %d tries", what, printable(c.Principal), c.Tries)
	}
	for i := range rec.Outbox {
		m := &rec.Outbox[i]
		l.line("message", "%s: %s to %s is %s%s%s", m.ID, printable(m.Name), printable(m.Destination), m.State, verdict.Tried(m), because(m.Failure))
	}
	if c := rec.Compensation; c != nil {
		l.line("compensation", "%s since %s: %s", c.State, when(max(c.StartedAt, c.SettledAt)), printable(c.Reason))
		l.line("compensated by", "%s", c.ID(rec.ID.Tenant).Encode())
		l.failure("compensation failed", c.Failure)
	}
}

// brief shows short text, and the size of any other result.
func brief(res semel.Result) string {
	const most = 200
	switch {
	case res.Tombstone && len(res.Data) == 0:
		return "not kept"
	case len(res.Data) > most || !utf8.Valid(res.Data):
		return fmt.Sprintf("%d bytes", len(res.Data))
	}
	for _, r := range string(res.Data) {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("%d bytes: %q", len(res.Data), res.Data)
		}
	}
	return fmt.Sprintf("%d bytes: %s", len(res.Data), res.Data)
}
