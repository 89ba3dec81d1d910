package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service/config"
)

// reportStatus prints what an answer with a status means, by upstream.
func reportStatus(cmd *cobra.Command, c *config.Config, status int) error {
	if status < 100 || status > 999 {
		return usage("--status %d is not a status from 100 to 999", status)
	}
	list := c.Meanings(status)
	return printReport(cmd, list, func(w io.Writer) error {
		tw := newTable(w)
		fmt.Fprintln(tw, "SETTING\tMATCH\tPROVES\tNEXT DELIVERY\tUNLESS")
		for _, m := range list {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", m.Setting, printable(m.Match), m.Proves, m.Next, printable(strings.Join(m.Conditions, "; ")))
		}
		return tw.Flush()
	}, false)
}
