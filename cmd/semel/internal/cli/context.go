package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/contexts"
	"github.com/semelhq/semel/internal/spelling"
)

// contextVariable names the context that commands use.
const contextVariable = "SEMEL_CONTEXT"

func contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name services once, so that commands need no --url",
		Long: `Name services once, so that commands need no --url. Where a command works is what comes
first of: --url, --store or --config; --context; the variable SEMEL_URL; the variable
SEMEL_CONTEXT; the context that 'semel context use' chose, or the first that you added;
and the store of the service's default configuration, or the service that has it open.

The file is semel/contexts.json in your configuration directory. It has no tokens, only
the names of the files that have them.`,
		Example: `  semel context add prod --url https://semel.example:8481 --token-file ~/.semel-token
  semel context use prod
  semel records list held`,
	}
	cmd.AddCommand(newContextAdd(), newContextList(), newContextUse(), newContextRemove())
	return cmd
}

// changeContexts reads the contexts, changes them, and writes them.
func changeContexts(change func(l *contexts.List) error) error {
	file, err := contexts.File()
	if err != nil {
		return err
	}
	l, err := contexts.Load(file)
	if err != nil {
		return err
	}
	if err := change(l); err != nil {
		return usage("%w", err)
	}
	return l.Save(file)
}

// oneContext takes the name of a context for the only argument, and completes it.
func oneContext(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("which context? Give one name")
		}
		return nil
	}
	cmd.ValidArgsFunction = completeContexts
}

func completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	file, err := contexts.File()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	l, err := contexts.Load(file)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(l.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

func newContextAdd() *cobra.Command {
	var c contexts.Context
	cmd := &cobra.Command{
		Use:     "add NAME",
		Short:   "Add a service, or change one",
		Example: `  semel context add prod --url https://semel.example:8481 --token-file ~/.semel-token`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if c.TokenFile != "" {
				if c.TokenFile, err = filepath.Abs(c.TokenFile); err != nil {
					return err
				}
				if _, err := os.Stat(c.TokenFile); err != nil {
					return usage("--token-file: %w", err)
				}
			}
			return changeContexts(func(l *contexts.List) error { return l.Add(args[0], c) })
		},
	}
	oneContext(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringVar(&c.URL, "url", "", "`URL` of the service's admin listener")
	cmd.Flags().StringVar(&c.TokenFile, "token-file", "", "`file` with the token for the service")
	return cmd
}

// contextLine is what semel context list --json prints of a context.
type contextLine struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}

func newContextList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the contexts; a star is at the current one",
		Long: `List the contexts; a star is at the current one.

The JSON is a list with name, current, url and token_file.`,
		Example: `  semel context list`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := contexts.File()
			if err != nil {
				return err
			}
			l, err := contexts.Load(file)
			if err != nil {
				return err
			}
			lines := []contextLine{}
			for _, name := range slices.Sorted(maps.Keys(l.Contexts)) {
				lines = append(lines, contextLine{name, name == l.Current, l.Contexts[name]})
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), lines)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, " \tNAME\tURL\tTOKEN FILE")
			for _, c := range lines {
				mark := ""
				if c.Current {
					mark = "*"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, c.Name, printable(c.URL), printable(c.TokenFile))
			}
			return w.Flush()
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newContextUse() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "use NAME",
		Short:   "Choose the context that commands use",
		Example: `  semel context use prod`,
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(func(l *contexts.List) error {
				_, err := contextOf(l, args[0])
				l.Current = args[0]
				return err
			})
		},
	}
	oneContext(cmd)
	return cmd
}

func newContextRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Forget a context",
		Example: `  semel context remove prod`,
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(func(l *contexts.List) error {
				_, err := contextOf(l, args[0])
				delete(l.Contexts, args[0])
				if l.Current == args[0] {
					l.Current = ""
				}
				return err
			})
		},
	}
	oneContext(cmd)
	return cmd
}

func contextOf(l *contexts.List, name string) (contexts.Context, error) {
	c, ok := l.Contexts[name]
	if ok {
		return c, nil
	}
	all := slices.Sorted(maps.Keys(l.Contexts))
	hint := ""
	if near := spelling.Nearest(name, all); near != "" {
		hint = ", did you mean " + near + "?"
	} else if len(all) > 0 {
		hint = ": there are " + strings.Join(all, ", ")
	}
	return c, fmt.Errorf("there is no context %q%s", name, hint)
}

// chosenContext is the context by this name, by the environment, or the current one. It
// reports ok if there is one.
func chosenContext(name string) (c contexts.Context, ok bool, err error) {
	if name == "" {
		name = os.Getenv(contextVariable)
	}
	file, err := contexts.File()
	if err != nil {
		if name == "" { // a service's account may have no home
			return c, false, nil
		}
		return c, false, err
	}
	l, err := contexts.Load(file)
	if err != nil {
		return c, false, err
	}
	if name == "" {
		name = l.Current
	}
	if name == "" {
		return c, false, nil
	}
	if c, err = contextOf(l, name); err != nil {
		return c, false, usage("%w", err)
	}
	return c, true, nil
}
