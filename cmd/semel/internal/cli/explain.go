package cli

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/spelling"
)

func newExplain() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [CODE|STATUS|TYPE]",
		Short: "Say what a code means and what to do about it",
		Long: `Say what a code means and what to do about it. Codes are in the answers of the
service, in its logs and in errors of the library. The type of a problem document names
its code, too. A status lists the codes that have it, and nothing lists all.

The JSON has code, status, title, meaning and action; without a code it is a list.`,
		Example: `  semel explain conflict
  semel explain 409
  semel explain https://api.example.com/semel/problems/held --json`,
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
			if status, err := strconv.Atoi(args[0]); err == nil {
				return explainStatus(out, status, asJSON)
			}
			// The type of a problem document ends in its code.
			all := explained()
			i := slices.IndexFunc(all, func(p door.Meaning) bool { return string(p.Code) == path.Base(args[0]) })
			if i < 0 {
				return usage("there is no code %q%s", args[0], nearCode(args[0]))
			}
			info := all[i]
			if asJSON {
				return printJSON(out, info)
			}
			_, err := fmt.Fprintf(out, "%s (%s, status %d)\n\n%s\n\nWhat to do: %s\n", info.Title, info.Code, info.Status, info.Meaning, info.HTTPAction())
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// explainStatus lists the codes that answers with a status have.
func explainStatus(out io.Writer, status int, asJSON bool) error {
	found := slices.DeleteFunc(explained(), func(p door.Meaning) bool { return p.Status != status })
	if len(found) == 0 {
		return usage("no code has the status %d", status)
	}
	if asJSON {
		return printJSON(out, found)
	}
	for _, p := range found {
		fmt.Fprintf(out, "%-26s %d  %s\n", p.Code, p.Status, p.Title)
	}
	return nil
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
