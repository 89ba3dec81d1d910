package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/store"
)

// recordName is how a command names one record: by any of the names that a call has,
// or by the members of its identity.
type recordName struct {
	id semel.ID
	// name is one that isn't a whole identity.
	name string
	// look: the record isn't changed, so its name may be guessed.
	look bool
}

const recordNames = `by any name that it has: its key; its id, as lists have it; the
reference, instance or status_url of a problem document; an execution; record, as a
log has it; an attribute, as in order=9911 or order=99*; or the command id, request
id, correlation id or event id of its first delivery`

// valueToo is said of commands that only look.
const valueToo = `.
Where nothing has that name, the value of an attribute will do, such as 9911`

func (n *recordName) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&n.id.Operation, "operation", "", "`operation` of the record, instead of its name")
	flags.StringVar(&n.id.Key, "key", "", "its `key`")
	flags.StringVar(&n.id.Tenant, "tenant", "", "its `tenant`, where several have used the key")
	flags.StringVar(&n.id.Principal, "principal", "", "its `principal`, where several have used the key")
}

// given reports whether a member of the identity was given.
func (n *recordName) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"operation", "key", "tenant", "principal"}, cmd.Flags().Changed)
}

// parse reads the name from the command line.
func (n *recordName) parse(cmd *cobra.Command, args []string) (semel.ID, error) {
	members := n.given(cmd)
	switch {
	case len(args) > 1:
		return semel.ID{}, usage("unexpected argument %q for %q", args[1], cmd.CommandPath())
	case len(args) == 1 && members:
		return semel.ID{}, usage("a record's name and the members of its identity exclude each other")
	case len(args) == 1:
		if q, ok := query.Name(args[0]); ok && q.Tenant != nil {
			return semel.ID{Tenant: *q.Tenant, Principal: q.Principal, Operation: q.Operation, Key: q.Key}, nil
		}
		n.name = args[0]
		return semel.ID{}, nil
	case n.id.Operation == "" || n.id.Key == "":
		return semel.ID{}, usage("which record? Give its name, or --operation and --key")
	}
	return n.id, nil
}

// find looks a record up. If only its operation and key are given, it finds the record of
// any tenant and principal, if there is just one.
func (n *recordName) find(ctx context.Context, cmd *cobra.Command, recs client.Records, id semel.ID) (semel.Record, error) {
	if n.name != "" {
		return n.findOnly(ctx, recs)
	}
	rec, err := recs.Lookup(ctx, id)
	if !errors.Is(err, semel.ErrNotFound) || cmd.Flags().NArg() > 0 || cmd.Flags().Changed("tenant") || cmd.Flags().Changed("principal") {
		return rec, err
	}
	found, more, serr := some(ctx, recs, store.Query{Operation: id.Operation, Key: id.Key})
	if serr != nil {
		return rec, err // the better error: a caller without a role may not search
	}
	switch len(found) {
	case 0:
		return rec, fmt.Errorf("there is no record of operation %s with the key %s: %w", printable(id.Operation), printable(id.Key), err)
	case 1:
		return found[0], nil
	default:
		var b strings.Builder
		for i := range found {
			fmt.Fprintf(&b, "\n  --tenant %s --principal %s", strconv.Quote(found[i].ID.Tenant), strconv.Quote(found[i].ID.Principal))
		}
		if more {
			b.WriteString("\n  and more")
		}
		return rec, usage("several callers have used the key %s; say whose record you mean:%s", printable(id.Key), b.String())
	}
}

// findOnly finds the record that has a name, if only one has it.
func (n *recordName) findOnly(ctx context.Context, recs client.Records) (semel.Record, error) {
	found, more, err := find(ctx, recs, n.name, n.look)
	switch {
	case err != nil:
		return semel.Record{}, err
	case len(found) == 1 && !more:
		return found[0], nil
	}
	var b strings.Builder
	for i := range found {
		rec := &found[i]
		fmt.Fprintf(&b, "\n  %s  %s, key %s, of %s, %s", rec.ID.Encode(), printable(rec.ID.Operation), printable(rec.ID.Key), short(rec.ID.Principal, shortPrincipal), stateOf(rec))
	}
	if more {
		b.WriteString("\n  and more")
	}
	return semel.Record{}, usage("several calls have the name %s; say which one you mean:%s", printable(n.name), b.String())
}

// find finds the newest calls that have a name, at most maxNamesakes. To look at them, the
// name may also be the value of an attribute.
func find(ctx context.Context, recs client.Records, name string, look bool) (found []semel.Record, more bool, err error) {
	if q, ok := query.Name(name); ok && q.Tenant != nil {
		// A caller without a role may look at their own record, and not search.
		rec, err := recs.Lookup(ctx, semel.ID{Tenant: *q.Tenant, Principal: q.Principal, Operation: q.Operation, Key: q.Key})
		return []semel.Record{rec}, false, err
	}
	finder := query.Find
	if look {
		finder = query.Look
	}
	found, more, err = finder(ctx, recs, name, maxNamesakes)
	if err == nil && len(found) == 0 {
		err = notFound("no call has the name %s; if it is the id of a duplicate, 'semel evidence show' knows it", printable(name))
	}
	return found, more, err
}

// maxNamesakes bounds how many records with one key are listed.
const maxNamesakes = 10

func newRecordsGet(from *recordsFrom) *cobra.Command {
	name := recordName{look: true}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get [NAME]",
		Short: "Show one record",
		Long: `Show one record. Name it ` + recordNames + valueToo + `.
Or give the members of its identity, of which operation and key will do if only one
caller has used them.

The JSON has the members that the record has in the API: id (its name for other
commands), tenant, principal, door, idempotency_key, operation, bound_to,
payload_hash, status, disposition, held, held_reason, result or result_base64,
result_kept, error (code, message), settled (by, who, reason, at), fence, attempt,
holder, created_at, updated_at, started_at, ended_at, lease_until, expires_at,
attempts, effects, attributes, confirmation, messages (payload_bytes not from a
service) and compensation; and answer (status, headers, and body or body_base64) where
the result is an HTTP answer. What does not apply is left out.`,
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
				if asJSON {
					return printJSON(cmd.OutOrStdout(), lineOf(&rec))
				}
				return printRecord(cmd.OutOrStdout(), &rec)
			})
		},
	}
	name.flags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// printRecord shows all of a record to people.
func printRecord(out io.Writer, rec *semel.Record) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("record", "%s", rec.ID.Encode())
	line("operation", "%s", printable(rec.ID.Operation))
	line("key", "%s", printable(rec.ID.Key))
	line("tenant", "%s", printable(rec.ID.Tenant))
	line("principal", "%s", printable(rec.ID.Principal))
	line("state", "%s", stateOf(rec))
	if rec.Held {
		line("held because", "%s", printable(rec.HeldReason))
	}
	line("attempt", "%d, fence %d, by %s for %s", rec.Attempt, rec.Fence, printable(rec.Holder), printable(rec.Principal))
	for _, at := range []struct {
		name string
		at   store.Instant
	}{
		{"created", rec.CreatedAt}, {"started", rec.StartedAt}, {"updated", rec.UpdatedAt}, {"ended", rec.EndedAt},
		{"leased until", rec.LeaseUntil}, {"kept until", rec.ExpiresAt},
	} {
		if at.at != 0 {
			line(at.name, "%s", at.at)
		}
	}
	if rec.Failure != nil {
		line("failure", "%s: %s", printable(rec.Failure.Code), printable(rec.Failure.Message))
	}
	if rec.Settled != nil {
		line("settled", "as %s%s", rec.Disposition, saidBy(rec.Settled))
	}
	printAnswer(line, rec)
	for i := range rec.Effects {
		ef := &rec.Effects[i]
		line("effect", "%s: %s%s since %s, key %s", printable(ef.Name), ef.State, saidBy(ef.Settled), when(max(ef.StartedAt, ef.SettledAt)), printable(ef.Key))
	}
	for i := range rec.Earlier {
		at := &rec.Earlier[i]
		line("earlier", "attempt %d, fence %d: %s%s at %s", at.Number, at.Fence, at.Disposition, saidBy(at.Settled), when(at.EndedAt))
	}
	printLater(line, rec)
	return w.Flush()
}

// printLater shows optional parts of a record.
func printLater(line func(name, format string, args ...any), rec *semel.Record) {
	for _, name := range slices.Sorted(maps.Keys(rec.Attributes)) {
		line("attribute", "%s: %s", printable(name), printable(rec.Attributes[name]))
	}
	if c := rec.Confirmation; c != nil {
		what := "asked for"
		if c.ConfirmedAt != 0 {
			what = "given " + when(c.ConfirmedAt)
		}
		line("confirmation", "%s, by %s, %d tries", what, printable(c.Principal), c.Tries)
	}
	for i := range rec.Outbox {
		m := &rec.Outbox[i]
		why := ""
		if m.Failure != nil {
			why = ": " + printable(m.Failure.Code)
		}
		line("message", "%s: %s to %s is %s%s%s", m.ID, printable(m.Name), printable(m.Destination), m.State, triesOf(m), why)
	}
	if c := rec.Compensation; c != nil {
		line("compensation", "%s since %s: %s", c.State, when(max(c.StartedAt, c.SettledAt)), printable(c.Reason))
		line("compensated by", "%s", c.ID(rec.ID.Tenant).Encode())
		if c.Failure != nil {
			line("compensation failed", "%s: %s", printable(c.Failure.Code), printable(c.Failure.Message))
		}
	}
}

// brief shows a result that is short and text, and the size of any other.
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
