package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/evidence"
)

// exportForm describes what export and prove write.
const exportForm = `The output is lines of JSON: a head (semel_evidence, origin, size, view), entries
(n, hash, leaf, opening), checkpoints (checkpoint), and an end (end).`

func newEvidenceExport() *cobra.Command {
	var from evidenceSource
	var opts evidence.ExportOptions
	var out, tenant string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the log to a file that can be verified anywhere",
		Long: `Write the log up to its newest checkpoint, with all checkpoints that are kept, to
a file that 'semel evidence verify' checks without the store. With --tenant, write
the entries of one tenant only, each with a proof that it is in the log; of others
it then shows nothing but that they are there.

` + exportForm,
		Example: `  semel evidence export --config semel.yaml --out log.jsonl
  semel evidence export --config semel.yaml --tenant acme --out acme.jsonl
  semel evidence export --store pebble:./semel-data --no-openings | zstd > log.jsonl.zst`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := from.open(cmd)
			if err != nil {
				return err
			}
			defer l.Close()
			if cmd.Flags().Changed("tenant") {
				if l.log == nil {
					return usage("%w", errNeedsKeys)
				}
				opts.Tenant = l.log.Tenant(tenant)
			}
			return l.writeTo(cmd, out, &opts)
		},
	}
	from.add(cmd)
	cmd.Flags().StringVar(&out, "out", "", "new `file` to write to, instead of standard output")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only the entries of this `tenant`, with proofs")
	cmd.Flags().BoolVar(&opts.NoOpenings, "no-openings", false, "leave out what entries are about in clear")
	return cmd
}

// writeTo exports to a new file or standard output, and says what.
func (l *evidenceLog) writeTo(cmd *cobra.Command, out string, opts *evidence.ExportOptions) (err error) {
	w := cmd.OutOrStdout()
	if out != "" {
		f, opened := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(opened, fs.ErrExist) {
			return fmt.Errorf("%s is there already: give the name of a new file", out)
		}
		if opened != nil {
			return opened
		}
		// A crash leaves a part of the log, without the end that verify looks for.
		defer func() {
			if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
				_ = os.Remove(out) // a part of a log is useless, and blocks the next export
			}
		}()
		w = f
	}
	if err := l.Export(cmd.Context(), w, opts); err != nil {
		return err
	}
	_, c := l.Checkpoint()
	fmt.Fprintf(cmd.ErrOrStderr(), "semel: the newest checkpoint of %s has %d entries\n", c.Origin, c.Size)
	return nil
}

func newEvidenceProve() *cobra.Command {
	var from evidenceSource
	var opts evidence.ExportOptions
	cmd := &cobra.Command{
		Use:   "prove NUMBER...",
		Short: "Prove that entries are in the log",
		Long: `Write entries, by their numbers, each with a proof that it is in the log: a few
kilobytes that 'semel evidence verify' checks without the log.

` + exportForm,
		Example: `  semel evidence prove --config semel.yaml 70 71 > proof.jsonl
  semel evidence verify --keys evidence.pub proof.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				n, err := strconv.ParseUint(arg, 10, 63)
				if err != nil {
					return usage("%q is not the number of an entry", arg)
				}
				opts.Only = append(opts.Only, n)
			}
			if len(opts.Only) == 0 {
				return usage("which entries? Give their numbers, which 'semel evidence show' has")
			}
			slices.Sort(opts.Only)
			opts.Only = slices.Compact(opts.Only)
			l, err := from.open(cmd)
			if err != nil {
				return err
			}
			defer l.Close()
			return l.writeTo(cmd, "", &opts)
		},
	}
	from.add(cmd)
	cmd.Flags().BoolVar(&opts.NoOpenings, "no-openings", false, "leave out what entries are about in clear")
	return cmd
}
