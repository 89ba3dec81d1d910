package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/server/query"
	"github.com/semelhq/semel/store"
)

// shownEntry is an entry as show --json prints it.
type shownEntry struct {
	N       uint64            `json:"n"`
	Leaf    evidence.Artifact `json:"leaf"`
	Opening *evidence.Opening `json:"opening"`
}

func newEvidenceShow() *cobra.Command {
	var from evidenceSource
	var id semel.ID
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show what the log says about a call",
		Long: `Show what happened to a call, from the first delivery on, by the entries of the log.
The name is any that the call or one of its deliveries has in its tenant: the key; a
command id, request id, correlation id or event id, also that of a duplicate or of a
rejected delivery; or the id of its record, as lists have it. Or give the members of
its identity. Entries are found by the secret keys of the log. Nothing is verified:
that is what export and verify are for.

The JSON is a list of entries: n, leaf, and opening, which is null where it was
erased.`,
		Example: `  semel evidence show --config semel.yaml --tenant acme cmd-1
  semel evidence show --config semel.yaml --operation payments.charge --key order-1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			switch {
			case len(args) > 1:
				return usage("unexpected argument %q for %q", args[1], cmd.CommandPath())
			case len(args) == 1:
				name = args[0]
			case id.Operation == "" || id.Key == "":
				return usage("which call? Give one of its names, or --operation and --key")
			}
			l, err := from.open(cmd)
			if err != nil {
				return err
			}
			defer l.Close()
			if l.log == nil {
				return usage("%w", errNeedsKeys)
			}
			entries, err := l.about(cmd, l.subject(id, name))
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				return &exitError{ExitNotFound, fmt.Errorf("the log has no entry about it")}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), entries)
			}
			return printEntries(cmd.OutOrStdout(), entries)
		},
	}
	from.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&id.Operation, "operation", "", "`operation` of a call without a command id")
	flags.StringVar(&id.Key, "key", "", "its `key`")
	flags.StringVar(&id.Tenant, "tenant", "", "`tenant`; the empty one if not given")
	flags.StringVar(&id.Principal, "principal", "", "its `principal`; the empty one if not given")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// subject is what the entries of a name are found by.
func (l *evidenceLog) subject(id semel.ID, name string) store.Subject {
	if q, ok := query.Name(name); ok && q.Tenant != nil {
		return l.log.Subject(semel.ID{Tenant: *q.Tenant, Principal: q.Principal, Operation: q.Operation, Key: q.Key})
	}
	if name != "" {
		return l.log.Name(id.Tenant, name)
	}
	return l.log.Subject(id)
}

// about reads the entries of a subject.
func (l *evidenceLog) about(cmd *cobra.Command, subject store.Subject) ([]shownEntry, error) {
	numbers, err := l.Find(cmd.Context(), subject)
	if err != nil {
		return nil, err
	}
	entries := make([]shownEntry, 0, len(numbers))
	for _, n := range numbers {
		en, err := l.Entry(cmd.Context(), n)
		if err != nil {
			return nil, err
		}
		shown := shownEntry{N: n}
		if shown.Leaf, err = evidence.ParseArtifact(en.Leaf); err != nil {
			return nil, fmt.Errorf("entry %d: %w", n, err)
		}
		if en.Opening != nil {
			opening, err := evidence.ParseOpening(shown.Leaf, en.Opening)
			if err != nil {
				return nil, fmt.Errorf("entry %d: %w", n, err)
			}
			shown.Opening = &opening
		}
		entries = append(entries, shown)
	}
	return entries, nil
}

func printEntries(out io.Writer, entries []shownEntry) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for i := range entries {
		e := &entries[i]
		if o := e.Opening; o != nil && (i == 0 || entries[i-1].Leaf.Payload.Record != e.Leaf.Payload.Record) {
			if err := w.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(out, "command %s, operation %s, key %s, tenant %s\n", printable(o.CommandID), printable(o.Operation), printable(o.IdempotencyKey), printable(o.Tenant))
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
	evidence.TypeMessage:               "message",
	evidence.TypeCompensation:          "compensation by",
	evidence.TypeConfirmationRequested: "a confirmation was asked for",
	evidence.TypeConfirmationRefused:   "a wrong confirmation was refused",
	evidence.TypeConfirmationConsumed:  "it was confirmed",
}

// inWords tells an entry to people.
func inWords(e *shownEntry) string {
	p := &e.Leaf.Payload
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
	if e.Opening != nil && e.Opening.FailureCode != "" {
		fmt.Fprintf(&b, ", %s", printable(e.Opening.FailureCode))
	}
	return b.String()
}
