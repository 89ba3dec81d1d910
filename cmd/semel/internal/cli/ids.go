package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door/ids"
)

func newIDs() *cobra.Command {
	return group(&cobra.Command{Use: "ids", Short: "Check registries of commands, and derive and explain the keys of envelopes"},
		newIDsLint(), newIDsKey(), newIDsExplain(), newIDsSchema(), newIDsList())
}

func newIDsSchema() *cobra.Command {
	var registry bool
	cmd := schemaCommand("command envelopes", `. Semel checks more
than a schema can: duplicate names, invalid text and lengths in bytes.

With --registry, print the schema of registries. 'semel ids lint' also checks
declarations against each other.`, "semel ids schema > envelope.schema.json\n  semel ids schema --registry > registry.schema.json", func() []byte {
		if registry {
			return ids.RegistrySchema()
		}
		return ids.EnvelopeSchema()
	})
	cmd.Short = "Print the JSON Schema of command envelopes or of registries"
	cmd.Flags().BoolVar(&registry, "registry", false, "print the schema of registries")
	return cmd
}

// envelopeFlags say which envelope a command is about, and which registry.
type envelopeFlags struct {
	registry, envelope string
}

func (f *envelopeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.registry, "registry", "", "`file` of the registry that declares the command")
	cmd.Flags().StringVar(&f.envelope, "envelope", "-", "`file` of the envelope; - is standard input")
	jsonFlag(cmd)
}

// derive reads the envelope and derives its key. It prints mistakes in the envelope or the
// registry, and then returns errReported.
func (f *envelopeFlags) derive(cmd *cobra.Command) (*ids.Derivation, error) {
	derive := ids.Derive
	if f.registry != "" {
		if f.registry == "-" && f.envelope == "-" {
			return nil, usage("--registry and --envelope can't both be standard input")
		}
		text, err := readAll(cmd, f.registry)
		if err != nil {
			return nil, err
		}
		reg, err := ids.Load(text, ids.LoadOptions{File: inputName(f.registry)})
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return nil, errReported
		}
		derive = reg.Derive
	}
	text, err := readAll(cmd, f.envelope)
	if err != nil {
		return nil, err
	}
	var d *ids.Derivation
	c, err := ids.ParseCommand(text)
	if err == nil {
		d, err = derive(c)
	}
	if err != nil {
		err = f.refuse(cmd, err)
	}
	return d, err
}

// refuse prints why an envelope has no key.
func (f *envelopeFlags) refuse(cmd *cobra.Command, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var refused struct {
		Problems []*ids.Error `json:"problems"`
	}
	for _, one := range all {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", inputName(f.envelope), printable(one.Error()))
		if e, ok := errors.AsType[*ids.Error](one); ok {
			refused.Problems = append(refused.Problems, e)
		}
	}
	return printReport(cmd, refused, func(io.Writer) error { return nil }, true)
}

func newIDsKey() *cobra.Command {
	var f envelopeFlags
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Derive the key of a command envelope",
		Long: `Derive the key of a command envelope: ids1: and the lower-case hexadecimal
SHA-256 of the canonical key inputs, in the form of RFC 8785.

The inputs are tenant_id, actor_id or effective_actor_id, intent, args and
command_kind. With --registry the registry says how to normalise them. Without it
nothing is normalised, arguments that are named like the current time, message ids
or random tokens are left out, and effective_actor_id wins over actor_id.

The JSON has canonical and idempotency_key, and record_key if the caller chose the
key. For a refused envelope it has problems, each with reason, path and message,
and the exit code is 1.`,
		Example: `  semel ids key < envelope.json
  semel ids key --registry registry.yaml --json < envelope.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := f.derive(cmd)
			if err != nil {
				return err
			}
			return printOne(cmd, d.Explain().Derived, d.Key)
		},
	}
	f.add(cmd)
	return cmd
}

// idsLintReport is what semel ids lint --json prints.
type idsLintReport struct {
	OK       bool           `json:"ok"`
	Commands []idsLinted    `json:"commands"`
	Problems []*ids.Problem `json:"problems"`
}

// idsLinted is a correct command of a registry.
type idsLinted struct {
	File    string `json:"file"`
	Command string `json:"command"`
	*ids.Policy
}

func newIDsLint() *cobra.Command {
	var functions []string
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check a registry of commands for mistakes",
		Long: `Find all mistakes in a registry of commands, with line and column: mutations weaker
than I1 without a justification, class I3 without a shield, windows that are too
short, arguments in the key that differ in every delivery, commands declared twice,
and syntax errors. The exit code is 1 if there are any.

Standard error has a warning for each command with command_kind destructive or
administrative that asks for no confirmation.

A registry names functions of your program; --functions checks those names, too.
The file - is standard input.

The JSON has ok, commands (each with file, command and its policy, see
'semel ids explain') and problems (each with file, line, column, path, command,
message and suggestion).`,
		Example: `  semel ids lint registry.yaml
  semel ids lint registry.yaml --functions cancelOrder,totp --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("which registry? Give its file")
			}
			report := idsLintReport{OK: true, Commands: []idsLinted{}, Problems: []*ids.Problem{}}
			for _, file := range args {
				if err := report.lint(cmd, file, functions); err != nil {
					return err
				}
			}
			return printReport(cmd, report, func(w io.Writer) error {
				for _, c := range report.Commands {
					fmt.Fprintf(w, "%s: ok: %s: %s\n", c.File, c.Command, c.Policy)
				}
				for _, p := range report.Problems {
					fmt.Fprintln(w, p)
				}
				return nil
			}, !report.OK)
		},
	}
	cmd.Flags().StringSliceVar(&functions, "functions", nil, "`names` of all functions in your program")
	return jsonFlag(cmd)
}

func (r *idsLintReport) lint(cmd *cobra.Command, file string, functions []string) error {
	text, err := readAll(cmd, file)
	if err != nil {
		return err
	}
	reg, err := ids.Load(text, ids.LoadOptions{File: inputName(file), Bindings: ids.BindingsOf(functions)})
	if problems, wrong := errors.AsType[ids.Problems](err); wrong {
		r.OK = false
		r.Problems = append(r.Problems, problems...)
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range reg.Unconfirmed() {
		fmt.Fprintf(cmd.ErrOrStderr(), "semel: %s: %s is %s and runs without a confirmation: write confirmation: {ttl: 5m}, or another command_kind\n", inputName(file), e.Name(), e.CommandKind)
	}
	for i := range reg.Commands {
		e := &reg.Commands[i]
		r.Commands = append(r.Commands, idsLinted{File: inputName(file), Command: e.Name(), Policy: e.Policy()})
	}
	return nil
}
