package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/wire"
)

// jsonFlag adds --json to a command.
func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// printJSON writes one indented JSON document.
func printJSON(w io.Writer, v any) error {
	enc := wire.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
