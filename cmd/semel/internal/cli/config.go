package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, print and explain the configuration of the service",
		Example: `  semel config validate semel.yaml
  semel config explain --config semel.yaml routes`,
	}
	cmd.AddCommand(newConfigValidate(), newConfigPrint(), newConfigExplain(), newConfigSchema())
	return cmd
}

// configSource says how the three commands that read a configuration find it.
const configSource = `Variables of the environment stand above the file, as they do for the service:
SEMEL_STORE_URL sets store.url. Without a file the configuration is what the
service runs with when it has none.`

// loadConfig reads a configuration the way the service does.
func loadConfig(cmd *cobra.Command, file string) (*config.Config, *config.Origins, error) {
	src := config.Source{Path: file}
	if file == "-" {
		data, err := readAll(cmd, file)
		if err != nil {
			return nil, nil, err
		}
		src.Path, src.Data = inputName(file), append([]byte{}, data...)
	}
	return loadSource(cmd, src)
}

// checkConfig reads a configuration, and makes what serve would make of it.
func checkConfig(cmd *cobra.Command, file string) (*config.Config, error) {
	cfg, origins, err := loadConfig(cmd, file)
	if err != nil {
		return nil, err
	}
	return cfg, blame(service.Check(cfg), origins)
}

// blame gives the errors of a service their places in the file.
func blame(err error, origins *config.Origins) error {
	if errs := service.Blame(err, origins); errs != nil {
		return errs
	}
	return err
}

// loadSource is how every command reads its configuration. It also names environment
// variables that look like settings but aren't.
func loadSource(cmd *cobra.Command, src config.Source) (*config.Config, *config.Origins, error) {
	for _, stray := range config.Strays(os.Environ()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "semel: the variable", stray)
	}
	if _, err := os.Stat(src.Path); src.Path != "" && src.Data == nil && errors.Is(err, os.ErrNotExist) {
		return nil, nil, usage("there is no file %s", src.Path)
	}
	src.Env = os.LookupEnv
	return config.Load(src)
}

// reportConfig prints what is wrong with a configuration to standard error.
func reportConfig(cmd *cobra.Command, err error) error {
	if errs, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), errs.Error())
		return errReported
	}
	return err
}

// oneFile reads the file of a command from its arguments.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("unexpected argument %q for %q", args[1], cmd.CommandPath())
	}
	return nil
}

// configFlag adds --config, as other commands have it, to one about a configuration.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "`file` of the service's configuration; - is standard input")
}

// oneConfig reads the file of a configuration from the arguments, unless --config has it.
func oneConfig(file *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && *file != "" {
			return usage("%s and --config %s are two files: name one", args[0], *file)
		}
		return oneFile(cmd, args)
	}
}

// isConfigFile reports whether an argument is the name of a file: no setting is called so.
func isConfigFile(arg string) bool {
	ext := filepath.Ext(arg)
	return ext == ".yaml" || ext == ".yml"
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// checkedConfig is what semel config validate --json prints.
type checkedConfig struct {
	Valid  bool          `json:"valid"`
	Errors config.Errors `json:"errors"`
	// Warnings are about a configuration that is valid.
	Warnings []string `json:"warnings,omitempty"`
}

func newConfigValidate() *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration and report every mistake at once",
		Long: `Check a configuration and report every mistake at once, each with its line,
its column and, where one is known, a suggestion. - is standard input. The exit
code is 1 if there are mistakes.

It reads what 'semel serve' reads: the registry of commands, sources, schemas, keys,
certificates and secrets, by the names in the file, which count from the current
directory. It opens no store and no port, and changes nothing. What is valid can be
served, unless another process has the port or the directory, or the database
doesn't answer.

` + configSource + `

What is valid and may not be what you want is told on standard error.

The JSON has valid, warnings where there are any, and errors: a list of objects
with message, and file, line, column, from, path, suggestion and source where
they apply.`,
		Example: `  semel config validate semel.yaml
  semel config validate --json - < semel.yaml`,
		Args: oneConfig(&file),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := checkConfig(cmd, cmp.Or(file, first(args)))
			errs, wrong := errors.AsType[config.Errors](err)
			if err != nil && !wrong {
				return err
			}
			var warnings []string
			if !wrong {
				warnings = c.Warnings()
			}
			if asJSON {
				if !wrong {
					errs = config.Errors{}
				}
				if err := printJSON(cmd.OutOrStdout(), checkedConfig{!wrong, errs, warnings}); err != nil {
					return err
				}
				if wrong {
					return errReported
				}
				return nil
			}
			if wrong {
				return reportConfig(cmd, errs)
			}
			for _, w := range warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "valid")
			return err
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newConfigPrint() *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "print [FILE]",
		Short: "Print the whole configuration, with what the file leaves out",
		Long: `Print the whole configuration, with what the file leaves out. It can be used as
a file again, except that digests of tokens are cut short and passwords left out.
- is standard input.

` + configSource + `

The JSON has the names of the YAML; durations and sizes are text.`,
		Example: `  semel config print
  semel config print --json semel.yaml`,
		Args: oneConfig(&file),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := loadConfig(cmd, cmp.Or(file, first(args)))
			if err != nil {
				return reportConfig(cmd, err)
			}
			if asJSON {
				return config.PrintJSON(cmd.OutOrStdout(), c)
			}
			return config.Print(cmd.OutOrStdout(), c)
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newConfigExplain() *cobra.Command {
	var asJSON bool
	var file, request string
	var status int
	cmd := &cobra.Command{
		Use:   "explain [FILE] [PATH]",
		Short: "Say what settings are for and where their values come from",
		Long: `Say what settings are for and where their values come from: a variable of the
environment, a line of the file or the default. PATH is a setting or a section,
such as store.url, limits or routes[0]; routes[].mode explains the setting of any
route. FILE, which ends in .yaml or .yml, is the same as --config. Secrets are not
shown.

With --request it says instead which part handles a request that was captured: which
route, webhook, inbox or service over Forrst, whether it is guarded, and what
identifies its call or events. The file has the first line of the request, its
header, an empty line and the body. Nothing is fetched or recorded.

With --status it says what an answer with this status proves that comes from the
upstream of each route, webhook, agent and service over Forrst, and what the next
delivery of the call gets.

` + configSource + `

The JSON is a list of objects with path, value, origin (kind, and file, line,
column or name), env, description and allowed; with --request one object with
door, and setting, operation, upstream, guarded, key, webhook, activitypub and
forrst where they apply; with --status a list of objects with setting, match,
status, proves, next and conditions.`,
		Example: `  semel config explain store
  semel config explain semel.yaml 'routes[0]'
  semel config explain --config semel.yaml --request delivery.http
  semel config explain --config semel.yaml --status 503`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && isConfigFile(args[0]) {
				if file != "" {
					return usage("%s and --config %s are two files: name one", args[0], file)
				}
				args = args[1:]
			}
			return oneFile(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && isConfigFile(args[0]) {
				file, args = args[0], args[1:]
			}
			c, origins, err := loadConfig(cmd, file)
			if err != nil {
				return reportConfig(cmd, err)
			}
			if status != 0 {
				if len(args) > 0 || request != "" {
					return usage("--status needs neither PATH nor --request")
				}
				return reportStatus(cmd, c, status, asJSON)
			}
			if request != "" {
				if len(args) > 0 || request == "-" && file == "-" {
					return usage("--request needs no PATH, and standard input can't be both files")
				}
				return reportRequest(cmd, c, request, asJSON)
			}
			list, err := config.Settings(c, origins, first(args))
			if err != nil {
				return usage("%w", err)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			return config.Explain(cmd.OutOrStdout(), c, origins, first(args))
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().IntVar(&status, "status", 0, "`status` of an upstream's answer, such as 503")
	cmd.Flags().StringVar(&request, "request", "", "`file` of a captured request; - is standard input")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: `Print the JSON Schema (2020-12) of the configuration file, for editors and other
tools. It is always JSON.`,
		Example: `  semel config schema > semel.schema.json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
