package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/archive"
)

func archiveCommand() *cobra.Command {
	return group(&cobra.Command{Use: "archive", Short: "Check and read the directory in which a service keeps purged records"},
		newArchiveVerify(), newArchiveRead())
}

// completeDirs completes the directory of an archive.
var completeDirs = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)

// archiveDir is the first argument.
func archiveDir(args []string) (string, error) {
	if len(args) == 0 {
		return "", usage("which archive? Give its directory")
	}
	if _, err := os.Stat(args[0]); errors.Is(err, fs.ErrNotExist) {
		return "", &usageError{missing("there is no directory " + args[0])}
	}
	return args[0], nil
}

func newArchiveVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Compare each file of an archive with its manifest",
		Long: `Compare each file of an archive with its manifest. If a file is
damaged, missing or not listed, the output names the first one, and the exit code is 1. It
can't notice that the newest files are missing if their manifest lines are, too.

Don't run it while a service writes to the archive.`,
		Example:           `  semel archive verify ./semel-archive`,
		ValidArgsFunction: completeDirs,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := archiveDir(args)
			if err == nil {
				err = archive.Verify(dir)
			}
			if err != nil {
				return err
			}
			says := "good  every file in %s is as its manifest says\n"
			if info, err := os.Stat(filepath.Join(dir, "manifest.ndjson")); err != nil || info.Size() == 0 {
				says = "empty  the archive in %s has no records so far\n"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), says, printable(dir))
			return err
		},
	}
}

func newArchiveRead() *cobra.Command {
	return &cobra.Command{
		Use:   "read DIR [QUALIFIER...]",
		Short: "Print the records of an archive as JSON, oldest first",
		Long: `Print the records of an archive as JSON, oldest first: one object per line, with the members
that 'semel records get' prints. The qualifiers are those of 'semel records list'. The
command checks each file's digest before it prints a record from it; a damaged file ends the
command with exit code 1.

After a crash of a service the same version of a record, by id and revision, may be there twice.`,
		Example: `  semel archive read ./semel-archive order=9911
  semel archive read ./semel-archive operation:payments.charge state:failed`,
		ValidArgsFunction: completeDirs,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := archiveDir(args)
			if err != nil {
				return err
			}
			q, err := parseQuery(args[1:])
			if err != nil {
				return err
			}
			enc := newEncoder(cmd.OutOrStdout())
			return archive.Read(dir, func(rec semel.Record) error {
				if !q.Matches(&rec) {
					return nil
				}
				return enc.Encode(lineOf(&rec))
			})
		},
	}
}
