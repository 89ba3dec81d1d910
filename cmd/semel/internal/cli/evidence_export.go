package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/client"
)

// exportForm describes what export and prove write.
const exportForm = `The output is lines of JSON: a head (semel_evidence, origin, size, view), entries
(n, hash, leaf, opening), checkpoints (checkpoint), and an end (end).`

func newEvidenceExport() *cobra.Command {
	var from evidenceSource
	var what client.EvidenceExport
	var out, tenant string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the log to a file that can be verified anywhere",
		Long: `Write the log up to its newest checkpoint, with all kept checkpoints, to
a file that 'semel evidence verify' checks without the store. With --tenant, write
only one tenant's entries, each with a proof that it is in the log. That shows how
many other entries there are, and nothing else about them. The command doesn't keep
the export in memory, and leaves no file behind if it breaks off.

` + exportForm + `

` + evidenceWhere,
		Example: `  semel evidence export --out log.jsonl
  semel evidence export --context prod --tenant acme --out acme.jsonl
  semel evidence export --store pebble:./semel-data --no-openings | zstd > log.jsonl.zst`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("tenant") {
				what.Tenant = &tenant
			}
			return from.with(cmd, func(_ context.Context, log evidenceLog) error { return writeTo(cmd, log, out, what) })
		},
	}
	from.add(cmd)
	cmd.Flags().StringVar(&out, "out", "", "new `file` to write to, instead of standard output")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only the entries of this `tenant`, with proofs")
	cmd.Flags().BoolVar(&what.NoOpenings, "no-openings", false, "leave out what entries are about in clear")
	return cmd
}

// writeTo exports to a new file or standard output, and says what.
func writeTo(cmd *cobra.Command, log evidenceLog, out string, what client.EvidenceExport) (err error) {
	var first beginning
	export := func(w io.Writer) error {
		return log.ExportEvidence(cmd.Context(), io.MultiWriter(w, &first), what)
	}
	if out == "" {
		err = export(cmd.OutOrStdout())
	} else if err = newFile(out, export); errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s is there already: give the name of a new file", out)
	}
	if err != nil {
		return err
	}
	var is struct {
		Origin string
		Size   uint64
	}
	if head, _, _ := bytes.Cut(first, []byte("\n")); json.Unmarshal(head, &is) == nil { // verify says if it isn't an export
		fmt.Fprintf(cmd.ErrOrStderr(), "semel: the newest checkpoint of %s has %d entries\n", printable(is.Origin), is.Size)
	}
	return nil
}

// beginning remembers the beginning of what is written: more than the first line of an export.
type beginning []byte

// Write implements [io.Writer].
func (b *beginning) Write(p []byte) (int, error) {
	const most = 4096
	*b = append(*b, p[:min(len(p), most-len(*b))]...)
	return len(p), nil
}

func newEvidenceProve() *cobra.Command {
	var from evidenceSource
	var what client.EvidenceExport
	cmd := &cobra.Command{
		Use:   "prove NUMBER...",
		Short: "Prove that entries are in the log",
		Long: `Write the entries with these numbers, each with a proof that it is in the log: a few
kilobytes that 'semel evidence verify' checks without the log. A service can prove at
most 1000 at once, and only those up to its newest checkpoint.

` + exportForm + `

` + evidenceWhere,
		Example: `  semel evidence prove 70 71 > proof.jsonl
  semel evidence verify --keys evidence.pub proof.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				n, err := strconv.ParseUint(arg, 10, 63)
				if err != nil {
					return usage("%q is not the number of an entry", arg)
				}
				what.Entries = append(what.Entries, n)
			}
			if len(what.Entries) == 0 {
				return usage("which entries? Give their numbers, which 'semel evidence show' has")
			}
			slices.Sort(what.Entries)
			what.Entries = slices.Compact(what.Entries)
			return from.with(cmd, func(_ context.Context, log evidenceLog) error { return writeTo(cmd, log, "", what) })
		},
	}
	from.add(cmd)
	cmd.Flags().BoolVar(&what.NoOpenings, "no-openings", false, "leave out what entries are about in clear")
	return cmd
}
