package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/spelling"
	"github.com/semelhq/semel/server/api"
)

func newExplain() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Say what a code means and what to do about it",
		Long: `Say what a code means and what to do about it. Codes are in the answers of the
service, in its logs and in errors of the library. Without a code all are listed.

The JSON has code, status, title, meaning and action; without a code it is a list.`,
		Example: `  semel explain conflict
  semel explain held --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("unexpected argument %q for %q", args[1], cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var codes []string
			for _, p := range explained() {
				codes = append(codes, string(p.Code))
			}
			return codes, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if len(args) == 0 {
				if asJSON {
					return printJSON(out, explained())
				}
				for _, p := range explained() {
					fmt.Fprintf(out, "%-26s %d  %s\n", p.Code, p.Status, p.Title)
				}
				return nil
			}
			all := explained()
			i := slices.IndexFunc(all, func(p api.ProblemInfo) bool { return string(p.Code) == args[0] })
			if i < 0 {
				return usage("there is no code %q%s", args[0], nearCode(args[0]))
			}
			info := all[i]
			if asJSON {
				return printJSON(out, info)
			}
			_, err := fmt.Fprintf(out, "%s (%s, status %d)\n\n%s\n\nWhat to do: %s\n", info.Title, info.Code, info.Status, info.Meaning, info.Action)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// nearCode suggests the code that was meant.
func nearCode(word string) string {
	var near []string
	for _, p := range explained() {
		code := string(p.Code)
		if spelling.Distance(word, code) <= max(2, len(word)/3) || strings.Contains(code, word) {
			near = append(near, code)
		}
	}
	if len(near) == 0 {
		return ""
	}
	slices.Sort(near)
	return ", did you mean " + strings.Join(near, " or ") + "?"
}
