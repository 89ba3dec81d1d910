package cli

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/codes"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/spelling"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [CODE|STATUS|EXIT|TYPE]",
		Short: "Say what a code means and what to do about it",
		Long: `Say what a code means and what to do about it. It can come from an answer or a log of
the service, an error of the library or a parked message, or be a decision, a limit or
the exit code of a command. You can also give the type of a problem document. Give an
HTTP status to list its codes, or nothing to list all of them.

The JSON has code, status (of HTTP; 0 if it has none), title, meaning and action;
without a code it is a list.`,
		Example: `  semel explain conflict
  semel explain 409
  semel explain 5
  semel explain https://api.example.com/semel/problems/held --json`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var known []string
			for _, p := range explained() {
				known = append(known, string(p.Code))
			}
			return known, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listCodes(cmd, explained())
			}
			word := strings.TrimSpace(args[0]) // Run puts a space in front of a minus
			if status, err := strconv.Atoi(word); err == nil && status >= 100 {
				return explainStatus(cmd, status)
			}
			return explainWord(cmd, word)
		},
	}
	return jsonFlag(cmd)
}

// explained are all codes, with those that commands exit with.
func explained() []door.Meaning { return slices.Concat(codes.All(), ofExits) }

// explainWord says what a code means.
func explainWord(cmd *cobra.Command, word string) error {
	info, ok := meaningOf(word)
	if _, call := lookup.Name(word); !ok && call {
		return usage("%s names a call: ask 'semel why %s'", printable(word), shellWord(word))
	}
	if !ok {
		return usage("there is no code %q%s", word, nearCode(word))
	}
	status := ""
	if info.Status != 0 {
		status = fmt.Sprintf(", status %d", info.Status)
	}
	return printOne(cmd, info, fmt.Sprintf("%s (%s%s)\n\n%s\n\nWhat to do: %s", info.Title, info.Code, status, info.Meaning, info.HTTPAction()))
}

// explainStatus lists the codes that answers with a status have.
func explainStatus(cmd *cobra.Command, status int) error {
	found := slices.DeleteFunc(explained(), func(p door.Meaning) bool { return p.Status != status })
	if len(found) == 0 {
		return usage("no code has the status %d%s", status, allCodes)
	}
	return listCodes(cmd, found)
}

// listCodes prints codes, to people as a table.
func listCodes(cmd *cobra.Command, list []door.Meaning) error {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%-26s %-3s  %s\n", p.Code, cmp.Or(strings.TrimLeft(strconv.Itoa(p.Status), "0"), "-"), p.Title)
	}
	return printOne(cmd, list, strings.TrimSuffix(b.String(), "\n"))
}

// meaningOf finds what a word means: a code in the spelling of its door, or as A2A writes it,
// in capitals; the type of a problem document, which ends in its code; an exit code.
func meaningOf(word string) (m door.Meaning, ok bool) {
	if n, err := strconv.Atoi(word); err == nil && n >= 0 {
		word = "exit_" + word
	}
	word = path.Base(word)
	all := explained()
	for _, spelling := range []string{word, strings.ToLower(word)} {
		if i := slices.IndexFunc(all, func(p door.Meaning) bool { return string(p.Code) == spelling }); i >= 0 {
			return all[i], true
		}
	}
	return m, false
}

const allCodes = "; 'semel explain' lists all codes"

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
		return allCodes
	}
	slices.Sort(near)
	return ", did you mean " + strings.Join(near, " or ") + "?"
}
