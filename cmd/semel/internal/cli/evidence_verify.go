package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/evidence"
)

func newEvidenceVerify() *cobra.Command {
	var from evidenceSource
	var kept []string
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Verify the log, or an export of it, with just the public key",
		Long: `Verify a log, or an export of it in a file (- is standard input): that every entry is
the one that was signed, in its place, and none is missing. The output names
the first bad entry. If only the checkpoints show that something is wrong, it names the
entries in question. The exit code is 1 if something is wrong.

This command checks everything itself, with the public keys in the file --keys: it only
gets the log from a service, and doesn't trust it. Keep those keys where the log's owner
can't change them; keys that come from the service itself would prove nothing.

It also judges what the entries say: two correctly signed entries may contradict each
other. For example, a call was executed again within its window without a purge or a
settlement in between, or a delivery got an outcome that no other entry explains. Then
somebody deleted, changed or added a record behind the engine's back; 'semel store audit'
finds which.

Without --checkpoints a log that was cut off, or rewritten by someone with the secret
key, looks intact: give checkpoints that were kept out of the owner's reach. An export
of the whole log is compared with all of them. A view of one tenant, or of some entries,
can only be compared with a checkpoint of its own size, and is refused if there is none.
If you may see only one tenant, a service gives you such a view.

The JSON has valid, origin, view, entries, without_opening, checkpoints,
kept_checkpoints, kept_not_compared (of another size than a view), size, root, proved
(of a view of some entries: n, leaf, and opening as in 'semel evidence show'), and if
something is wrong finding (kind, first, last, message), contradictions (a list
of such findings) and contradictions_found. The kinds are changed, missing, order,
opening, cut, fork, signature, format and story.

` + evidenceWhere,
		Example: `  semel evidence verify --keys evidence.pub
  semel evidence verify --keys evidence.pub --context prod --checkpoints kept/latest
  semel evidence verify --keys evidence.pub --checkpoints kept/latest log.jsonl
  zstd -d < log.jsonl.zst | semel evidence verify --keys evidence.pub -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := from.verify(cmd, args, kept)
			if err != nil {
				return err
			}
			return printReport(cmd, verifiedLog{r.Finding == nil, r},
				func(w io.Writer) error { return printVerified(w, &r, len(kept) > 0) }, r.Finding != nil)
		},
	}
	from.recordSource.add(cmd.Flags())
	cmd.Flags().StringVar(&from.keys, "keys", "", "`file` with the public keys")
	cmd.Flags().StringArrayVar(&kept, "checkpoints", nil, "`file` with checkpoints that were kept; may be repeated")
	return jsonFlag(cmd)
}

// verifiedLog is what semel evidence verify --json prints.
type verifiedLog struct {
	Valid bool `json:"valid"`
	evidence.Report
}

// trust reads the public keys for the log, or for the file in args.
func (s *evidenceSource) trust(args []string) (*evidence.Trust, error) {
	if s.keys == "" {
		return nil, usage("--keys is missing: the file with the public keys")
	}
	if given := s.flags(); len(args) == 1 && given != "" {
		return nil, usage("a file is verified as it is, without%s", given)
	}
	text, err := os.ReadFile(s.keys)
	if err != nil {
		return nil, usage("--keys: %w", err)
	}
	trust, err := evidence.ParseTrust(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; it's what 'semel evidence keygen' prints", filepath.Base(s.keys), err)
	}
	return trust, nil
}

// checkpointsIn reads the checkpoints in files.
func checkpointsIn(files []string) (all []string, err error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, usage("--checkpoints: %w", err)
		}
		found := evidence.SplitCheckpoints(text)
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no checkpoint", file)
		}
		all = append(all, found...)
	}
	return all, nil
}

// verify verifies a file, or the log itself if args name none, against the checkpoints in the
// files kept. It verifies the export as it comes.
func (s *evidenceSource) verify(cmd *cobra.Command, args, kept []string) (report evidence.Report, err error) {
	trust, err := s.trust(args)
	if err != nil {
		return report, err
	}
	opts := &evidence.VerifyOptions{}
	if opts.Kept, err = checkpointsIn(kept); err != nil {
		return report, err
	}
	switch first(args) {
	case "-":
		return evidence.Verify(cmd.InOrStdin(), trust, opts)
	case "":
		err = s.open(cmd, false, func(ctx context.Context, log evidenceLog) error {
			var err error
			report, err = evidence.VerifyExport(func(w io.Writer) error { return log.ExportEvidence(ctx, w, client.EvidenceExport{}) }, trust, opts)
			return err
		})
		return report, err
	}
	f, err := os.Open(args[0])
	if err != nil {
		return report, usage("%w", err)
	}
	defer f.Close()
	return evidence.Verify(f, trust, opts)
}

func printVerified(w io.Writer, r *evidence.Report, kept bool) error {
	if r.Finding != nil {
		fmt.Fprintf(w, "BAD   %s\n", r.Finding)
		for i := range r.Contradictions {
			if r.Contradictions[i] != *r.Finding {
				fmt.Fprintf(w, "BAD   %s\n", &r.Contradictions[i])
			}
		}
		if more := r.ContradictionsFound - len(r.Contradictions); more > 0 {
			fmt.Fprintf(w, "      and %d contradictions more\n", more)
		}
		return nil
	}
	fmt.Fprintf(w, "good  %d entries of %s, %d of them without an opening\n", r.Entries, r.Origin, r.Erased)
	fmt.Fprintf(w, "      %d checkpoints, the last of %d entries with the root %s\n", r.Checkpoints, r.Size, r.Root)
	if kept {
		fmt.Fprintf(w, "      %d kept checkpoints agree\n", r.Kept)
	}
	if r.NotCompared > 0 {
		fmt.Fprintf(w, "note: %d kept checkpoints have another size than this view, and were not compared\n", r.NotCompared)
	}
	if r.View != "log" {
		fmt.Fprintln(w, "note: nothing proves that there are no other entries to show")
	}
	if !kept {
		fmt.Fprintln(w, "note: nothing proves that the end was not cut off, or the log written anew by the owner of the key: give --checkpoints")
	}
	return printEntries(w, r.Proved)
}
