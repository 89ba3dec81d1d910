package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/evidence"
)

// auditMeans says what a discrepancy means.
var auditMeans = map[evidence.Discrepancy]string{
	evidence.RecordMissing: "the log tells of it, and the store doesn't have it",
	evidence.RecordChanged: "it isn't what its last entry says",
	evidence.RecordOlder:   "it is what it was before its last entry, as if it were put back",
	evidence.RecordUnknown: "the log tells of no change of it",
}

// auditNeedsNot says why the log needn't tell what some records are.
var auditNeedsNot = map[evidence.WhyUnlogged]string{
	evidence.NoEvidence:     "of operations without evidence",
	evidence.BeforeEvidence: "from before their operation kept evidence",
	evidence.BeforeRestore:  "from before the store was restored",
	evidence.NoContents:     "with entries of a version that didn't note what a record is",
	evidence.OtherFormat:    "with entries of a version that stored them in another form",
	evidence.SequenceMark:   "that only order the numbers of a sequence",
	evidence.Reserved:       "of Semel itself",
	evidence.Gone:           "that were deleted meanwhile",
}

func newStoreAudit() *cobra.Command {
	var keys string
	var progress bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare every record with its last entry in the evidence log",
		Long: `Compare every record with its last entry in the evidence log, and name those that
were deleted, changed, put back or added behind the engine. It needs the secret keys
of the log, and reads the log and all records once. The service may go on, but for
that of a directory, which one process uses at a time. Redis keeps no evidence, so
there is nothing to compare its records with. That the log itself is as it was signed
is for 'semel evidence verify'. The exit code is 1 if something is wrong.

Each record is what the log says, or the log needn't tell for a reason that is named,
or it is a fault. If evidence of an operation was switched off for a while and on
again, its records that changed meanwhile are named, too.

The JSON has entries, records, compared, unlogged (those that the log needn't tell
of), unlogged_reasons (how many for each reason), faults (kind, record, tenant,
operation, idempotency_key, sequence, record_ref, entry) and faults_found. The kinds
are missing, changed, older and unknown. The reasons are no_evidence,
before_evidence, before_restore, no_contents, other_format, sequence_mark, reserved
and gone.`,
		Example: `  semel store audit --config semel.yaml
  semel store audit --store postgres://semel@db/semel --keys evidence.key --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := loadSource(cmd, configured(cmd))
			if err != nil {
				return err
			}
			l, err := openLog(cmd, cfg, keys, true, false)
			if err != nil {
				return err
			}
			defer l.Close()
			if l.log == nil {
				return usage("%w", errNeedsKeys)
			}
			tell := func(*evidence.Audit) {}
			if progress || isTerminal(cmd.ErrOrStderr()) {
				tell = auditProgress(cmd.ErrOrStderr())
			}
			found, err := l.log.Audit(cmd.Context(), tell)
			if err != nil {
				return err
			}
			return printReport(cmd, found, func(w io.Writer) error { return printAudit(w, &found) }, found.Found > 0)
		},
	}
	cmd.Flags().StringVar(&keys, "keys", "", secretKeys)
	cmd.Flags().BoolVar(&progress, "progress", false, "show progress on standard error, even if that is not a terminal")
	return jsonFlag(configFlags(cmd))
}

// auditProgress tells how far an audit is, once a second.
func auditProgress(w io.Writer) func(*evidence.Audit) {
	var last time.Time
	return func(a *evidence.Audit) {
		if now := time.Now(); now.Sub(last) >= time.Second {
			last = now
			fmt.Fprintf(w, "read %d entries and %d records, %d faults\n", a.Entries, a.Records, a.Found)
		}
	}
}

func printAudit(out io.Writer, a *evidence.Audit) error {
	w := newTable(out)
	for i := range a.Faults {
		f := &a.Faults[i]
		entry := "-"
		if f.Entry != nil {
			entry = fmt.Sprint("entry ", *f.Entry)
		}
		key := printable(f.Key)
		if f.Sequence != 0 {
			key += fmt.Sprint(", number ", f.Sequence)
		}
		fmt.Fprintf(w, "BAD   %s\t%s\tkey %s\ttenant %s\t%s\t%s\n", f.Kind, printable(f.Operation), key, printable(f.Tenant), entry, auditMeans[f.Kind])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := a.Found - len(a.Faults); more > 0 {
		fmt.Fprintf(out, "      and %d more\n", more)
	}
	verdict := "good"
	if a.Found > 0 {
		verdict = "     "
	}
	fmt.Fprintf(out, "%s  %d of %d records are what the last of %d entries say\n", verdict, a.Compared, a.Records, a.Entries)
	for _, why := range slices.Sorted(maps.Keys(a.Reasons)) {
		fmt.Fprintf(out, "      %d %s (%s)\n", a.Reasons[why], auditNeedsNot[why], why)
	}
	return nil
}
