package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/contexts"
	"github.com/semelhq/semel/internal/spelling"
)

// contextVariable names the context that commands use.
const contextVariable = "SEMEL_CONTEXT"

func contextCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "context",
		Short: "Name services once, so that commands need no --url",
		Long: `Name services once, so that commands need no --url. A command uses the first of these:
--url, --store or --config; --context; the variable SEMEL_URL; the variable SEMEL_CONTEXT;
the context that 'semel context use' chose, or the first that you added; the store of the
service's default configuration, or the service that has it open.

The file is semel/contexts.json in your configuration directory. It has no tokens, only
the names of files with tokens.`,
	}, newContextAdd(), newContextList(), newContextUse(), newContextRemove())
}

// loadContexts reads this user's contexts.
func loadContexts() (l *contexts.List, file string, err error) {
	if file, err = contexts.File(); err == nil {
		l, err = contexts.Load(file)
	}
	return l, file, err
}

// newContextChange completes a command that changes the contexts, by the name of one.
func newContextChange(cmd *cobra.Command, change func(l *contexts.List, name string) error) *cobra.Command {
	cmd.Use += " NAME"
	cmd.Args = oneArg("which context? Give its name")
	cmd.ValidArgsFunction = completeContexts
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		l, file, err := loadContexts()
		if err != nil {
			return err
		}
		if err := change(l, args[0]); err != nil {
			return usage("%w", err)
		}
		return l.Save(file)
	}
	return cmd
}

func completeContexts(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if l, _, err := loadContexts(); err == nil && len(args) == 0 {
		names = slices.Sorted(maps.Keys(l.Contexts))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newContextAdd() *cobra.Command {
	var c contexts.Context
	cmd := newContextChange(&cobra.Command{
		Use:     "add",
		Short:   "Add a service, or change one",
		Example: `  semel context add prod --url https://semel.example:8481 --token-file ~/.semel-token`,
	}, func(l *contexts.List, name string) (err error) {
		if c.TokenFile != "" {
			if c.TokenFile, err = filepath.Abs(c.TokenFile); err != nil {
				return err
			}
			if _, err := os.Stat(c.TokenFile); err != nil {
				return fmt.Errorf("--token-file: %w", err)
			}
		}
		return l.Add(name, c)
	})
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
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the contexts; a star marks the current one",
		Long: `List the contexts; a star marks the current one.

The JSON is a list with name, current, url and token_file.`,
		Example: `  semel context list`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, _, err := loadContexts()
			if err != nil {
				return err
			}
			lines := []contextLine{}
			for _, name := range slices.Sorted(maps.Keys(l.Contexts)) {
				lines = append(lines, contextLine{name, name == l.Current, l.Contexts[name]})
			}
			return printReport(cmd, lines, func(out io.Writer) error {
				w := newTable(out)
				fmt.Fprintln(w, " \tNAME\tURL\tTOKEN FILE")
				for _, c := range lines {
					mark := ""
					if c.Current {
						mark = "*"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, c.Name, printable(c.URL), printable(c.TokenFile))
				}
				return w.Flush()
			}, false)
		},
	}
	return jsonFlag(cmd)
}

func newContextUse() *cobra.Command {
	return newContextChange(&cobra.Command{
		Use:     "use",
		Short:   "Choose the context that commands use",
		Example: `  semel context use prod`,
	}, func(l *contexts.List, name string) error {
		_, err := contextOf(l, name)
		l.Current = name
		return err
	})
}

func newContextRemove() *cobra.Command {
	return newContextChange(&cobra.Command{
		Use:     "remove",
		Short:   "Forget a context",
		Example: `  semel context remove prod`,
	}, func(l *contexts.List, name string) error {
		_, err := contextOf(l, name)
		delete(l.Contexts, name)
		if l.Current == name {
			l.Current = ""
		}
		return err
	})
}

func contextOf(l *contexts.List, name string) (contexts.Context, error) {
	c, ok := l.Contexts[name]
	if ok {
		return c, nil
	}
	all := slices.Sorted(maps.Keys(l.Contexts))
	if len(all) == 0 {
		return c, fmt.Errorf("there is no context %q; 'semel context add' makes one", name)
	}
	return c, fmt.Errorf("there is no context %q%s", name, spelling.Suggest(name, all))
}

// chosenContext returns the context by this name, by the environment, or the current one. It
// reports ok if there is one.
func chosenContext(name string) (c contexts.Context, ok bool, err error) {
	name = cmp.Or(name, os.Getenv(contextVariable))
	if _, err := contexts.File(); err != nil && name == "" { // a service's account may have no home
		return c, false, nil
	}
	l, _, err := loadContexts()
	if err != nil {
		return c, false, err
	}
	if name = cmp.Or(name, l.Current); name == "" {
		return c, false, nil
	}
	if c, err = contextOf(l, name); err != nil {
		return c, false, usage("%w", err)
	}
	return c, true, nil
}
