package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/evidence"
)

func newEvidenceVerify() *cobra.Command {
	var keys string
	var kept []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Verify an export with nothing but the public key",
		Long: `Verify an export, from a file or standard input: that every entry is the one that
was signed, in its place, and none is missing. The first bad entry is named, or
where only checkpoints tell that something is wrong the entries among which it is.
The exit code is 1 if something is wrong.

What the entries tell is judged, too: two that are as they were signed may contradict
each other, as when a call was executed again within its window and nothing tells of
a purge or a settlement in between. Then a record was deleted or changed behind the
engine; 'semel store audit' finds which.

Without --checkpoints a log that was cut, or written anew by someone with the
secret key, looks whole: give checkpoints that were kept where the owner of the log
has no say. An export of the whole log is held against all of them. A view of one
tenant, or of some entries, can only be held against one of its own size, and is
refused if none of them has that.

The JSON has valid, origin, view, entries, without_opening, checkpoints,
kept_checkpoints, kept_not_compared (of another size than a view), size, root, and
if something is wrong finding (kind, first, last, message), contradictions (a list
of such findings) and contradictions_found. The kinds are changed, missing, order,
opening, cut, fork, signature, format and story.`,
		Example: `  semel evidence verify --keys evidence.pub log.jsonl
  semel evidence verify --keys evidence.pub --checkpoints kept/latest log.jsonl
  zstd -d < log.jsonl.zst | semel evidence verify --keys evidence.pub`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if keys == "" {
				return usage("--keys is missing: the file with the public keys")
			}
			trust, err := keysOf(keys)
			if err != nil {
				return err
			}
			opts := &evidence.VerifyOptions{}
			for _, file := range kept {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				found := evidence.SplitCheckpoints(text)
				if len(found) == 0 {
					return fmt.Errorf("%s has no checkpoint", file)
				}
				opts.Kept = append(opts.Kept, found...)
			}
			in := cmd.InOrStdin()
			if len(args) == 1 && args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			report, err := evidence.Verify(in, trust, opts)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), struct {
					Valid bool `json:"valid"`
					evidence.Report
				}{report.Finding == nil, report})
			} else {
				err = printReport(cmd.OutOrStdout(), &report, len(opts.Kept) > 0)
			}
			if err == nil && report.Finding != nil {
				err = errReported
			}
			return err
		},
	}
	cmd.Flags().StringVar(&keys, "keys", "", "`file` with the public keys")
	cmd.Flags().StringArrayVar(&kept, "checkpoints", nil, "`file` with checkpoints that were kept; may be repeated")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printReport(w io.Writer, r *evidence.Report, kept bool) error {
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
	var err error
	if !kept {
		_, err = fmt.Fprintln(w, "note: nothing proves that the end was not cut off, or the log written anew by the owner of the key: give --checkpoints")
	}
	return err
}
