package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands",
		Long: `Write the manual pages of all commands into a directory, which is created if it
doesn't exist.`,
		Example: `  semel man ./man1`,
		Args:    oneArg("which directory? Give a new or an empty one"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // it has the date, so builds would differ
			shells, _, _ := root.Find([]string{"completion"})
			root.RemoveCommand(shells) // four pages, which say what its help says
			return doc.GenManTree(root, &doc.GenManHeader{Title: "SEMEL", Section: "1", Source: "Semel", Manual: "Semel"}, args[0])
		},
	}
}
