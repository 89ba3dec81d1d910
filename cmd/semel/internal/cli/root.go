// Package cli is the command line of Semel. Data goes to standard output and
// diagnostics to standard error. Every command that prints data accepts --json, whose
// fields are documented in the command's help and don't change.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/spelling"
)

// The exit codes of every command. They never change their meaning.
const (
	ExitOK    = 0 // done
	ExitCheck = 1 // a check failed, or the command couldn't do its work
	ExitUsage = 2 // the command line is wrong; nothing was done
)

// Run runs one command line, without the program's name, and returns the exit
// code. When ctx is done the command cleans up and ends.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	args = append([]string{}, args...) // nil would mean the arguments of the process
	for i, arg := range args {
		if excludes(arg) || isRPCCode(arg) {
			args[i] = " " + arg // so that it isn't taken for a flag
		}
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errReported):
		return ExitCheck
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	fmt.Fprintf(stderr, "semel: %s\n", strings.TrimPrefix(err.Error(), "semel: "))
	if e, ok := errors.AsType[*semel.Error](err); ok && e.Code == door.CodeUnauthorized && !strings.Contains(err.Error(), "SEMEL_TOKEN") {
		fmt.Fprintln(stderr, "Your token is the one in the file that --token-file or the context names, or the variable SEMEL_TOKEN.")
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
		return ExitUsage
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return ExitCheck
}

// isRPCCode reports whether an argument is the code of an error of JSON-RPC, such as -32600.
func isRPCCode(arg string) bool {
	n, err := strconv.Atoi(arg)
	return err == nil && n <= -10000
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "semel",
		Short: "Exactly-once effects over at-least-once delivery",
		Long: `Semel gives exactly-once effects over at-least-once delivery.

Exit codes: 0 done, 1 a check failed or the work could not be done, 2 usage; where calls
or messages are looked for or changed also 3 not found, 4 not in that state, and where a
service or a store is used 5 in use, out of reach, or unknown. 'semel explain CODE' says
what they mean, and every code that an answer or a log has.`,
		Example: `  semel demo                            see what a retry does with and without a guard
  semel proxy http://127.0.0.1:3000     guard a service of yours
  semel why 9911                        was the order charged twice?
  semel records list held               which calls wait for a decision?`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	version := root.Flags().Bool("version", false, "print the version, as 'semel version' does")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return flagFault(cmd, err)
	})
	root.AddCommand(newServe(), newProxy(), newDemo(), group(newKey()), group(newIDs()), group(newWebhook()), group(configCommand()), group(newRecords(newRecordsFrom())), newWhy(newRecordsFrom()), newTop(), newTail(newRecordsFrom()), newDoctor(), group(contextCommand()), group(newMessages(newRecordsFrom())), group(evidenceCommand()), group(storeCommand()), group(reconcileCommand()), group(archiveCommand()), group(migrateCommand()), newHealthcheck(), newExplain(), newMan(), newVersion(), newDemoProvider())
	group(root)
	// cobra prints a version of its own by a template, and a template engine makes the binary
	// half as large again.
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*version {
			return cmd.Help()
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), buildVersion(debug.ReadBuildInfo()).line())
		return err
	}
	sortCommands(root)
	completeFlags(root)
	return root
}

// purposes are what people come for, with the commands that serve it. Those that are in none
// come last.
var purposes = []struct {
	title    string
	commands []string
}{
	{"Run it:", []string{"demo", "proxy", "serve"}},
	{"See what happened, and decide:", []string{"why", "records", "messages", "top", "tail", "evidence", "reconcile", "explain", "context"}},
	{"Look after a service and its store:", []string{"doctor", "healthcheck", "store", "archive", "migrate"}},
	{"Write and check what it works by:", []string{"config", "key", "ids", "webhook"}},
}

// sortCommands lists the commands of the program by their purpose.
func sortCommands(root *cobra.Command) {
	for i := range purposes {
		p := &purposes[i]
		root.AddGroup(&cobra.Group{ID: p.title, Title: p.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(p.commands, cmd.Name()) {
				cmd.GroupID = p.title
			}
		}
	}
}

// group makes a command that only has subcommands suggest one for a wrong name, and
// print its help without one. Its annotations say why there are no commands of some names.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if why := cmd.Annotations[args[0]]; why != "" {
			return usage("%s", why)
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = ", did you mean " + strings.Join(near, " or ") + "?"
		}
		return usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// A usageError is a wrong command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errReported says that a check failed and that its output has said why.
var errReported = errors.New("a check failed")

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unexpected argument %q for %q", args[0], cmd.CommandPath())
	}
	return nil
}

// flagFault is what is wrong with a flag, in words for who has typed it.
func flagFault(cmd *cobra.Command, err error) error {
	if given := cmd.Flags().Args(); cmd.HasSubCommands() && len(given) > 0 {
		return cmd.Args(cmd, given) // it isn't a flag of the command that was meant
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := bad.GetFlag()
		switch kind := flag.Value.Type(); kind {
		case "int", "int64":
			return usage("--%s: %q is not a whole number", flag.Name, bad.GetValue())
		case "uint", "uint16", "uint64":
			return usage("--%s: %q is not a whole number from 0 up", flag.Name, bad.GetValue())
		case "float64":
			return usage("--%s: %q is not a number", flag.Name, bad.GetValue())
		case "bool":
			return usage("--%s: %q is neither true nor false", flag.Name, bad.GetValue())
		case "duration":
			return usage("--%s: %q is not a duration such as 30s, 5m or 2h", flag.Name, bad.GetValue())
		case "size":
			return usage("--%s: %q is not a size such as 10MiB", flag.Name, bad.GetValue())
		}
	}
	return usage("%w%s", err, flagHint(cmd, err))
}

// flagHint names the flag that an unknown one may have been meant for.
func flagHint(cmd *cobra.Command, err error) string {
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	best := spelling.Nearest(name, names)
	if best == "" {
		return ""
	}
	return ", did you mean --" + best + "?"
}
