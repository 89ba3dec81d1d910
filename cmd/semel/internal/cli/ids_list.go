package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/wire"
)

func newIDsList() *cobra.Command {
	var src recordSource
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the commands of a running service, as its registry declares them",
		Long: `List the commands that a running service takes, as its registry declares them.

` + runningLong,
		Example: `  semel ids list
  semel ids list --url http://127.0.0.1:8481 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, _, err := src.running(cmd)
			if err != nil {
				return err
			}
			list, err := service.Commands(cmd.Context())
			if err != nil {
				return exitWith(err)
			}
			return printReport(cmd, list, func(w io.Writer) error { return printCommands(w, list) }, false)
		},
	}
	src.add(cmd.Flags())
	return jsonFlag(cmd)
}

func printCommands(out io.Writer, list []wire.Operation) error {
	table := newTable(out)
	fmt.Fprintf(table, "COMMAND\tCLASS\tWINDOW\tSHIELDS\tWEIGHT\tBOUND TO\tCONFIRMED\tJUSTIFICATION\n")
	word := func(is bool, word string) string { return map[bool]string{true: word}[is] }
	for i := range list {
		c := &list[i]
		weight := strings.Trim(word(c.Financial, "financial,")+word(c.Command.Critical, "critical"), ",")
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(c.Name), printable(c.Class), ageOf(time.Duration(c.Window)*time.Millisecond),
			cmp.Or(strings.Join(c.Shields, ","), "-"), cmp.Or(weight, "-"), printable(c.Command.Binding.Principal), cmp.Or(word(c.Confirms, "yes"), "no"), printable(c.Command.Justification))
	}
	return table.Flush()
}
