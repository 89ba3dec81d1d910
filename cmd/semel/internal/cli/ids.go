package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door/ids"
)

func newIDs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ids",
		Short: "Check registries of commands, and derive and explain the keys of envelopes",
		Example: `  semel ids lint registry.yaml
  semel ids key --json < envelope.json
  semel ids explain --registry registry.yaml < envelope.json
  semel ids schema > envelope.schema.json`,
	}
	cmd.AddCommand(newIDsLint(), newIDsKey(), newIDsExplain(), newIDsSchema())
	return cmd
}

func newIDsSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of command envelopes",
		Long: `Print the JSON Schema (2020-12) of command envelopes. It can't say all that is
checked: duplicate names, invalid text and lengths in bytes are refused too.`,
		Example: `  semel ids schema > envelope.schema.json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(ids.EnvelopeSchema())
			return err
		},
	}
}

// envelopeFlags say which envelope a command is about, and which registry.
type envelopeFlags struct {
	registry, envelope string
	asJSON             bool
}

func (f *envelopeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.registry, "registry", "", "`file` of the registry that declares the command")
	cmd.Flags().StringVar(&f.envelope, "envelope", "-", "`file` of the envelope; - is standard input")
	jsonFlag(cmd, &f.asJSON)
}

// derive reads the envelope and derives its key. It prints what is wrong with the
// envelope or the registry, and then returns errReported.
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
	c, err := ids.ParseCommand(text)
	if err != nil {
		return nil, f.refuse(cmd, err)
	}
	d, err := derive(c)
	if err != nil {
		return nil, f.refuse(cmd, err)
	}
	return d, nil
}

// refusedEnvelope is what --json prints if there is no key.
type refusedEnvelope struct {
	Problems []*ids.Error `json:"problems"`
}

// refuse says why an envelope has no key.
func (f *envelopeFlags) refuse(cmd *cobra.Command, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var refused refusedEnvelope
	for _, one := range all {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", inputName(f.envelope), printable(one.Error()))
		if e, ok := errors.AsType[*ids.Error](one); ok {
			refused.Problems = append(refused.Problems, e)
		}
	}
	if f.asJSON {
		if err := printJSON(cmd.OutOrStdout(), refused); err != nil {
			return err
		}
	}
	return errReported
}

// derivedIDs is what semel ids key --json prints.
type derivedIDs struct {
	Canonical      string `json:"canonical"`
	IdempotencyKey string `json:"idempotency_key"`
	// RecordKey is set where it is another: the caller chose it.
	RecordKey string `json:"record_key,omitempty"`
}

func newDerivedIDs(d *ids.Derivation) derivedIDs {
	out := derivedIDs{Canonical: string(d.Canonical), IdempotencyKey: d.Key}
	if d.RecordKey != d.Key {
		out.RecordKey = d.RecordKey
	}
	return out
}

func newIDsKey() *cobra.Command {
	var f envelopeFlags
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Derive the key of a command envelope",
		Long: `Derive the key of a command envelope: ids1: and the lower-case hexadecimal
SHA-256 of the canonical key inputs, in the form of RFC 8785.

The inputs are tenant_id, actor_id or effective_actor_id, intent, args and
command_kind. Without --registry nothing is normalised, arguments with the names
of times of now, message ids and random tokens are left out, and
effective_actor_id is used where it is given. With it, all of that is as the
registry declares.

The JSON has canonical and idempotency_key, and record_key where the caller chose
the key. Of an envelope that is refused it has problems, each with reason, path
and message, and the exit code is 1.`,
		Example: `  semel ids key < envelope.json
  semel ids key --registry registry.yaml --json < envelope.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := f.derive(cmd)
			if err != nil {
				return err
			}
			if f.asJSON {
				return printJSON(cmd.OutOrStdout(), newDerivedIDs(d))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), d.Key)
			return err
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

// idsLinted is a command of a registry that is right.
type idsLinted struct {
	File    string `json:"file"`
	Command string `json:"command"`
	idsPolicy
}

func newIDsLint() *cobra.Command {
	var functions []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check a registry of commands for mistakes",
		Long: `Find what is wrong with a registry of commands, everything at once and with line
and column: mutations weaker than I1 without a justification, class I3 without a
shield, windows that are too short, arguments that every delivery makes anew in
the key, commands declared twice, and everything that can't be read. The exit
code is 1 if anything is.

The functions that a registry names are those of a program. With --functions
their names are checked too. The file - is standard input.

The JSON has ok, commands (each with file, command and its policy, see
'semel ids explain') and problems (each with file, line, column, path, command,
message and suggestion).`,
		Example: `  semel ids lint registry.yaml
  semel ids lint registry.yaml --functions cancelOrder,totp --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("there is no registry to check: give its file")
			}
			report := idsLintReport{OK: true, Commands: []idsLinted{}, Problems: []*ids.Problem{}}
			for _, file := range args {
				if err := report.lint(cmd, file, functions); err != nil {
					return err
				}
			}
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), report); err != nil {
					return err
				}
			} else {
				for _, c := range report.Commands {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: ok: %s: %s\n", c.File, c.Command, c.summary())
				}
				for _, p := range report.Problems {
					fmt.Fprintln(cmd.OutOrStdout(), p)
				}
			}
			if !report.OK {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&functions, "functions", nil, "`names` of all functions that the registry may name")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (r *idsLintReport) lint(cmd *cobra.Command, file string, functions []string) error {
	text, err := readAll(cmd, file)
	if errors.Is(err, os.ErrNotExist) {
		return usage("there is no file %s", file)
	}
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
	for i := range reg.Commands {
		e := &reg.Commands[i]
		r.Commands = append(r.Commands, idsLinted{File: inputName(file), Command: e.Name(), idsPolicy: newIDsPolicy(e)})
	}
	return nil
}
