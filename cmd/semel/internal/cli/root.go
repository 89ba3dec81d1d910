// Package cli is the command line of Semel. Data goes to standard output, diagnostics to standard
// error. Every command that prints data has --json; its help documents the members, which don't
// change.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semelhq/semel/internal/service/config"
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
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:], "--help")
	}
	for i, arg := range args {
		if excludes(arg) || isRPCCode(arg) {
			args[i] = " " + arg // or it would be parsed as a flag
		}
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var unknown error // about a command that there isn't, asked for help
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if unknown = misspelt(cmd); unknown == nil {
			help(cmd, nil)
		}
	})
	cmd, err := root.ExecuteContextC(ctx)
	switch err = cmp.Or(err, unknown); {
	case err == nil:
		return ExitOK
	case errors.Is(err, errReported):
		return ExitCheck
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	case strings.HasPrefix(err.Error(), "unknown command "): // of cobra's own command completion
		err = usage("%w", err)
	}
	if errs, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(stderr, errs) // each with its own place
		return ExitCheck
	}
	fmt.Fprintf(stderr, "semel: %s\n", strings.TrimPrefix(err.Error(), "semel: "))
	fmt.Fprint(stderr, hintFor(err))
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

Exit codes: 0 done, 1 a check failed or the work could not be done, 2 usage; of commands on
calls and messages also 3 not found, 4 not in that state; of commands on a service or a
store also 5 in use, out of reach, or unknown. 'semel explain CODE' explains them, and
every code in an answer or a log.`,
		Example: `  semel demo                            see what a retry does with and without a guard
  semel proxy http://127.0.0.1:3000     guard one of your services
  semel why 9911                        was the order charged twice?
  semel records list held               which calls wait for a decision?`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	version := root.Flags().Bool("version", false, "print the version, as 'semel version' does")
	root.SetFlagErrorFunc(flagFault)
	for _, p := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run it:", []*cobra.Command{newDemo(), newProxy(), newMCP(), newServe()}},
		{"See what happened, and decide:", []*cobra.Command{newWhy(newRecordsFrom()), newRecords(newRecordsFrom()), newMessages(newRecordsFrom()), newTop(), newTail(newRecordsFrom()),
			evidenceCommand(), reconcileCommand(), newExplain(), newDocs(), contextCommand()}},
		{"Look after a service and its store:", []*cobra.Command{newDoctor(), newHealthcheck(), storeCommand(), archiveCommand(), migrateCommand()}},
		{"Judge any service:", []*cobra.Command{checkCommand()}},
		{"Configuration and keys:", []*cobra.Command{configCommand(), openapiCommand(), newKey(), newIDs(), newWebhook()}},
	} {
		root.AddGroup(&cobra.Group{ID: p.title, Title: p.title})
		for _, cmd := range p.commands {
			cmd.GroupID = p.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(newMan(), newVersion(), newDemoProvider())
	group(root)
	// cobra prints a version of its own by a template, and a template engine makes the binary
	// half as large again.
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*version {
			return cmd.Help()
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), thisBuild().line())
		return err
	}
	complete(root)
	return root
}

// group adds commands to another, which prints its help without one of them, and suggests one
// for a wrong name. Its annotations say why some names have no command. Its examples are the first of each
// subcommand.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	var examples []string
	for _, sub := range cmd.Commands() {
		for line := range strings.Lines(sub.Example) {
			examples = append(examples, strings.TrimSuffix(line, "\n"))
			if !strings.HasSuffix(line, "\\\n") { // it doesn't go on
				break
			}
		}
	}
	cmd.Example = cmp.Or(cmd.Example, strings.Join(examples, "\n"))
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if why := cmd.Annotations[args[0]]; why != "" {
			return usage("%s", why)
		}
		var names []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		return usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), spelling.Suggest(args[0], names))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// A usageError is a wrong command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errReported ends a command that has printed why its check failed.
var errReported = errors.New("a check failed")

// atMost refuses the arguments after the first n.
func atMost(n int, cmd *cobra.Command, args []string) error {
	if len(args) <= n {
		return nil
	}
	if _, err := os.Stat(args[n]); err == nil && cmd.Flags().Lookup("config") != nil {
		return usage("unexpected argument %q for %q, did you mean --config %s?", args[n], cmd.CommandPath(), args[n])
	}
	return usage("unexpected argument %q: write %s", args[n], cmd.UseLine())
}

// oneArg wants one positional argument, and asks for it if there is none, or an empty one.
func oneArg(ask string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if first(args) == "" {
			return usage("%s", ask)
		}
		return atMost(1, cmd, args)
	}
}

// misspelt is the error of a command line that names a subcommand that isn't there.
func misspelt(cmd *cobra.Command) error {
	if given := cmd.Flags().Args(); cmd.HasSubCommands() && len(given) > 0 {
		return cmd.Args(cmd, given)
	}
	return nil
}

// flagFault says in plain words what is wrong with a flag.
func flagFault(cmd *cobra.Command, err error) error {
	if err := misspelt(cmd); err != nil {
		return err // whose flag it is
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := bad.GetFlag()
		if want := flagTypes[flag.Value.Type()]; want != "" {
			return usage("--%s: %q is not %s", flag.Name, bad.GetValue(), want)
		}
	}
	return usage("%w%s", err, flagHint(cmd, err))
}

// flagTypes says what a flag's value must be, by its type.
var flagTypes = map[string]string{
	"int": "a whole number", "uint64": "a whole number from 0 up", "bool": "true or false", "duration": "a duration such as 30s, 5m or 2h", "size": "a size such as 10MiB", "time": "a time such as 2026-01-02T03:04:05Z",
}

// flagHint suggests a flag for an unknown one.
func flagHint(cmd *cobra.Command, err error) string {
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return spelling.Suggest("--"+name, names)
}
