package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/store"
)

func newEvidenceShow() *cobra.Command {
	var from evidenceSource
	var about evidenceAbout
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show what the log says about a call",
		Long: `Show what happened to a call, from the first delivery on, as the log recorded it.
Name it ` + recordNames + valueToo + `.
The log also knows the ids of duplicates and of rejected deliveries, and calls whose records are
gone; give their --tenant, if they have one. Or give the members of its identity. For a
store, give the log's secret keys, which find the entries. This verifies nothing: use
'semel evidence verify' for that.

The JSON is a list of entries: n, leaf, and opening, which is null if it was
erased.

` + evidenceWhere,
		Example: `  semel evidence show order-1
  semel evidence show order=9911 --context prod
  semel evidence show --config semel.yaml --operation payments.charge --key order-1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := about.parse(cmd, args); err != nil {
				return err
			}
			return from.with(cmd, func(ctx context.Context, log evidenceLog) error {
				kept, err := about.entries(ctx, log)
				if err != nil {
					return err
				}
				if len(kept) == 0 {
					return &exitError{ExitNotFound, errors.New("the log has no entry about it")}
				}
				var entries []evidence.OpenEntry
				for _, en := range kept {
					shown, err := evidence.Open(en.N, en.Leaf, en.Opening) // holds the opening against its leaf
					if err != nil {
						return fmt.Errorf("entry %d: %w", en.N, err)
					}
					entries = append(entries, shown)
				}
				return printReport(cmd, entries, func(w io.Writer) error { return printEntries(w, entries) }, false)
			})
		},
	}
	from.add(cmd)
	about.flags(cmd)
	return jsonFlag(cmd)
}

// evidenceAbout is the call that entries are about, as it was named.
type evidenceAbout struct {
	recordName
	tenant, identity bool // the tenant was given; all of the identity was
}

func (a *evidenceAbout) parse(cmd *cobra.Command, args []string) error {
	a.tenant = cmd.Flags().Changed("tenant")
	a.identity = a.tenant || cmd.Flags().Changed("principal")
	switch {
	case len(args) == 1 && (a.id.Operation != "" || a.id.Key != "" || a.id.Principal != ""):
		return usage("a name, and --operation, --key and --principal exclude each other: give one of them")
	case first(args) != "":
		a.name = args[0]
	case a.id.Operation == "" || a.id.Key == "":
		return usage("which call? Give one of its names, or --operation and --key")
	}
	return nil
}

// entries are about every call with the name. The records tell which calls have it; the log
// itself knows the names of duplicates, and of calls without a record.
func (a *evidenceAbout) entries(ctx context.Context, log evidenceLog) (all []client.EvidenceEntry, err error) {
	if a.name == "" && a.identity {
		return log.Evidence(ctx, client.EvidenceName{ID: a.id})
	}
	if q, ok := lookup.Name(a.name); ok && q.Tenant != nil {
		return log.Evidence(ctx, client.EvidenceName{ID: semel.ID{Tenant: *q.Tenant, Principal: q.Principal, Operation: q.Operation, Key: q.Key}})
	}
	var found []store.Record
	if a.name != "" {
		found, _, err = pagesOf(log, a.name).Newest(ctx, a.name, maxNamesakes)
	} else {
		found, _, err = lookup.Some(ctx, log, store.Query{Operation: a.id.Operation, Key: a.id.Key}, maxNamesakes)
	}
	if err != nil {
		return nil, err
	}
	for i := range found {
		if a.tenant && found[i].ID.Tenant != a.id.Tenant {
			continue
		}
		more, err := log.Evidence(ctx, client.EvidenceName{ID: found[i].ID})
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	switch {
	case len(all) > 0:
		return all, nil
	case a.name == "":
		return log.Evidence(ctx, client.EvidenceName{ID: a.id})
	}
	return log.Evidence(ctx, client.EvidenceName{Tenant: a.id.Tenant, Name: a.name})
}

func printEntries(out io.Writer, entries []evidence.OpenEntry) error {
	w := newTable(out)
	for i := range entries {
		e := &entries[i]
		if o := e.Opening; o != nil && (i == 0 || entries[i-1].Leaf.Payload.Record != e.Leaf.Payload.Record) {
			if err := w.Flush(); err != nil {
				return err
			}
			command := ""
			if o.CommandID != "" {
				command = "command " + printable(o.CommandID) + ", "
			}
			key := printable(o.IdempotencyKey)
			if n := e.Leaf.Payload.Sequence; n != "" {
				key += ", number " + n
			}
			fmt.Fprintf(out, "%soperation %s, key %s, tenant %s\n", command, printable(o.Operation), key, printable(o.Tenant))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\n", e.N, e.Leaf.EmittedAt.Format(time.DateTime+".000"), inWords(e))
	}
	return w.Flush()
}

// stories say what the types of artifacts mean.
var stories = map[evidence.Type]string{
	evidence.TypeStarted:               "a further attempt began",
	evidence.TypeExecuted:              "it was executed",
	evidence.TypeFailed:                "the attempt failed",
	evidence.TypeAborted:               "the attempt ended, and nothing had happened",
	evidence.TypeAbandoned:             "the attempt was given up, and another may follow",
	evidence.TypeReleased:              "its claim was given back, and nothing was executed",
	evidence.TypeRestored:              "the store was restored from a backup",
	evidence.TypeHeld:                  "it is held: nobody knows what its attempt did",
	evidence.TypeEffect:                "effect",
	evidence.TypePurged:                "an operator purged the record",
	evidence.TypeForgotten:             "its window was over, and its outcome was dropped: the call is still known",
	evidence.TypeMoved:                 "the refusal got a record of its own, for the caller who got it",
	evidence.TypeMessage:               "message",
	evidence.TypeCompensation:          "compensation by",
	evidence.TypeConfirmationRequested: "a confirmation was asked for",
	evidence.TypeConfirmationRefused:   "a wrong confirmation was refused",
	evidence.TypeConfirmationGiven:     "it was confirmed",
	evidence.TypeConfirmationConsumed:  "its confirmation was used",
}

// inWords tells an entry to people.
func inWords(e *evidence.OpenEntry) string {
	p := &e.Leaf.Payload
	if p.Count > 0 {
		return fmt.Sprintf("%d deliveries were answered %s, from %s to %s", p.Count, p.Decision, p.From.Format(time.TimeOnly), p.Until.Format(time.TimeOnly))
	}
	var b strings.Builder
	switch e.Leaf.Type {
	case evidence.TypeObservation:
		switch {
		case p.Decision == evidence.DecisionReplayed:
			b.WriteString("a duplicate got the outcome that exists; nothing was executed")
		case p.Executed != nil && *p.Executed:
			b.WriteString("it was seen for the first time, and its execution began")
		default:
			b.WriteString("it was seen for the first time")
		}
	case evidence.TypeRejected:
		b.WriteString("it was rejected for good by who executes it")
		if p.Reason == evidence.ReasonConflict {
			b.Reset()
			fmt.Fprintf(&b, "a delivery with another payload was rejected (fingerprint %.8s, not %.8s); nothing was executed", p.Presented, p.Fingerprint)
		}
	case evidence.TypeSettled:
		fmt.Fprintf(&b, "it was settled as %s", p.Disposition)
	case evidence.TypeAnswered:
		fmt.Fprintf(&b, "a delivery was answered %s", p.Decision)
	default:
		b.WriteString(stories[e.Leaf.Type])
	}
	if p.State != "" {
		if e.Opening != nil && e.Opening.Item != "" {
			b.WriteString(" " + printable(e.Opening.Item))
		}
		b.WriteString(" is " + p.State)
	}
	if p.By != "" {
		s := &store.Settled{By: p.By}
		if e.Opening != nil {
			s.Who, s.Reason = e.Opening.SettledBy, e.Opening.Reason
		}
		b.WriteString(saidBy(s))
	}
	if p.Attempt > 0 {
		fmt.Fprintf(&b, " (attempt %d)", p.Attempt)
	}
	if p.OutcomeRef != "" {
		fmt.Fprintf(&b, ", outcome %.12s", p.OutcomeRef)
	}
	if o := e.Opening; o != nil {
		if o.FailureCode != "" {
			fmt.Fprintf(&b, ", %s", printable(o.FailureCode))
		}
		if ids := strings.Trim(o.PresentedCommandID+", "+o.PresentedRequestID, ", "); ids != "" {
			fmt.Fprintf(&b, ", of the delivery %s", printable(ids))
		}
	}
	return b.String()
}
