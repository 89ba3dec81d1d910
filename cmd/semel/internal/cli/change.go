package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// change is the common part of commands that change something irrevocably: they need a
// reason, and ask for confirmation first.
type change struct {
	from        *recordsFrom
	reason      string
	yes, dryRun bool
	asJSON      bool
}

// flags adds the flags; readers says who reads the reason later.
func (c *change) flags(cmd *cobra.Command, readers string) {
	flags := cmd.Flags()
	flags.StringVar(&c.reason, "reason", "", "why, for those who "+readers)
	flags.BoolVar(&c.yes, "yes", false, "do not ask whether to go on")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only say what would happen")
	jsonFlag(cmd, &c.asJSON)
}

// check refuses a change without a reason, or that can't be confirmed because nobody is
// at the terminal.
func (c *change) check(cmd *cobra.Command, thing string) error {
	if strings.TrimSpace(c.reason) == "" || !utf8.ValidString(c.reason) {
		return usage("--reason is needed: why should the %s be changed?", thing)
	}
	if !c.yes && !c.dryRun && !c.from.terminal(cmd.InOrStdin()) {
		return usage("nobody can be asked whether to go on: add --yes, or --dry-run to see what would happen")
	}
	return nil
}

// ask shows the thing and what the action means for it, and reports whether to continue,
// which a dry run doesn't. It returns an error if the person said no.
func (c *change) ask(cmd *cobra.Command, action, means string, show func(w io.Writer) error) (goOn bool, err error) {
	if !c.yes || c.dryRun {
		talk := cmd.ErrOrStderr()
		if err := show(talk); err != nil {
			return false, err
		}
		fmt.Fprintf(talk, "\n%s: %s\n", action, means)
		if at := c.from.source.service; at != "" {
			fmt.Fprintf(talk, "This is the service at %s.\n", at)
		}
	}
	if c.dryRun || c.yes {
		return !c.dryRun, nil
	}
	fmt.Fprint(cmd.ErrOrStderr(), "Go on? Type yes: ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was changed.")
		return false, errReported
	}
	return true, nil
}
