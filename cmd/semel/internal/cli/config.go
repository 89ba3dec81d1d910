package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

func configCommand() *cobra.Command {
	return group(&cobra.Command{Use: "config", Short: "Check, print and explain the configuration of the service"},
		newConfigValidate(), newConfigPrint(), newConfigExplain(), newConfigSchema(), configFromOpenAPI())
}

// configSource says how the three commands that read a configuration find it.
const configSource = `Environment variables override the file, as they do for the service:
SEMEL_STORE_URL sets store.url. Without a file you get the configuration that the
service has without one.`

// loadConfig reads a configuration as the service does, with the store that --store names, if any.
func loadConfig(cmd *cobra.Command, file, store string) (*config.Config, *config.Origins, error) {
	src := config.Source{Path: file}
	if store != "" {
		src.Flags = map[string]string{"store": store}
	}
	if file == "-" {
		data, err := readAll(cmd, file)
		if err != nil {
			return nil, nil, err
		}
		src.Path, src.Data = inputName(file), append([]byte{}, data...)
	}
	return loadSource(cmd, src)
}

// blame gives the errors of a service their places in the file.
func blame(err error, origins *config.Origins) error {
	if errs := service.Blame(err, origins); errs != nil {
		return errs
	}
	return err
}

// loadSource reads a configuration for any command. It warns of environment variables that look
// like settings but aren't.
func loadSource(cmd *cobra.Command, src config.Source) (*config.Config, *config.Origins, error) {
	for _, stray := range config.Strays(os.Environ()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "semel: the variable", stray)
	}
	if _, err := os.Stat(src.Path); src.Path != "" && src.Data == nil && errors.Is(err, os.ErrNotExist) {
		return nil, nil, noFile(src.Path)
	}
	src.Env = os.LookupEnv
	return config.Load(src)
}

// configFlag adds --config, as other commands have it, to one about a configuration.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "the service's configuration `file`; - is standard input")
}

// oneConfig reads the file of a configuration from the arguments, unless --config has it.
func oneConfig(file *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && *file != "" {
			return usage("%s and --config %s are two files: name one", args[0], *file)
		}
		return atMost(1, cmd, args)
	}
}

// configAndPath is oneConfig for arguments that go on with the path of a setting.
func configAndPath(file *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		named, rest := fileBefore(args)
		if err := oneConfig(file)(cmd, named); err != nil {
			return err
		}
		return atMost(1, cmd, rest)
	}
}

// fileBefore splits the name of a configuration's file from the arguments after it. No setting
// ends like such a file.
func fileBefore(args []string) (file, rest []string) {
	if ext := filepath.Ext(first(args)); ext == ".yaml" || ext == ".yml" {
		return args[:1], args[1:]
	}
	return nil, args
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
	var file string
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration and report every mistake at once",
		Long: `Check a configuration and report every mistake at once, each with its line and
column, and a suggestion if there is one. - is standard input. The exit code is 1 if
there are mistakes.

Like 'semel serve' it also reads the files that the configuration names, relative to
the current directory: the registry of commands, sources, schemas, keys, certificates
and secrets. It opens no store and no port, and changes nothing. A service can start
with a valid configuration, unless another process has the port or the directory, or
the database doesn't answer.

` + configSource + `

Warnings about valid settings that you may not want go to standard error.

The JSON has valid, warnings if there are any, and errors: a list of objects with
message, and file, line, column, from, path, suggestion and source where they apply.`,
		Example: `  semel config validate semel.yaml
  semel config validate --json - < semel.yaml`,
		Args: oneConfig(&file),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, origins, err := loadConfig(cmd, cmp.Or(file, first(args)), "")
			if err == nil {
				err = blame(service.Check(c), origins)
			}
			found, text := checkedConfig{Valid: err == nil, Errors: config.Errors{}}, "valid"
			if err == nil {
				found.Warnings = c.Warnings()
			} else if !asJSON(cmd) || !errors.As(err, &found.Errors) {
				return err
			}
			if file == "" && len(args) == 0 {
				text = "valid: the settings of a service without a file"
			}
			return printReport(cmd, found, func(w io.Writer) error {
				for _, text := range found.Warnings {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", text)
				}
				_, err := fmt.Fprintln(w, text)
				return err
			}, !found.Valid)
		},
	}
	configFlag(cmd, &file)
	return jsonFlag(cmd)
}

func newConfigPrint() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "print [FILE]",
		Short: "Print the whole configuration, defaults included",
		Long: `Print the whole configuration, defaults included. You can use it as a file again,
but it shortens digests of tokens and leaves out passwords. - is standard input.

` + configSource + `

The JSON has the names of the YAML; durations and sizes are text.`,
		Example: `  semel config print
  semel config print --json semel.yaml`,
		Args: oneConfig(&file),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := loadConfig(cmd, cmp.Or(file, first(args)), "")
			if err != nil {
				return err
			}
			return printReport(cmd, config.Redacted(c), func(w io.Writer) error { return config.Print(w, c) }, false)
		},
	}
	configFlag(cmd, &file)
	return jsonFlag(cmd)
}

const configExplainLong = `Explain settings, and where their values come from: an environment variable, a line
of the file or the default. PATH is a setting or a section, such as store.url, limits
or routes[0]; routes[].mode explains the setting of any route. FILE, which ends in
.yaml or .yml, is the same as --config. Secrets aren't shown.

--request shows instead which part handles a captured request: which route, webhook,
inbox or service over Forrst, whether it is guarded, and the identity of its call or
events. The file has the first line of the request, its header, an empty line and the
body. Nothing is fetched or recorded.

--status shows what an upstream's answer with this status proves, for each route,
webhook, agent and service over Forrst, and what the next delivery of the call gets.

` + configSource + `

The JSON is a list of objects with path, value, origin (kind, and file, line,
column or name), env, description and allowed; with --request one object with
door, and setting, operation, upstream, guarded, key, webhook, activitypub and
forrst where they apply; with --status a list of objects with setting, match,
status, proves, next and conditions.`

func newConfigExplain() *cobra.Command {
	var file, request string
	var status int
	cmd := &cobra.Command{
		Use:   "explain [FILE] [PATH]",
		Short: "Explain settings and where their values come from",
		Long:  configExplainLong,
		Example: `  semel config explain store
  semel config explain semel.yaml 'routes[0]'
  semel config explain --config semel.yaml --request delivery.http
  semel config explain --config semel.yaml --status 503`,
		Args: configAndPath(&file),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, args := fileBefore(args)
			c, origins, err := loadConfig(cmd, cmp.Or(file, first(named)), "")
			if err != nil {
				return err
			}
			switch {
			case status != 0 && (len(args) > 0 || request != ""):
				return usage("--status needs neither PATH nor --request")
			case request != "" && (len(args) > 0 || request == "-" && file == "-"):
				return usage("--request needs no PATH, and standard input can't be both files")
			case status != 0:
				return reportStatus(cmd, c, status)
			case request != "":
				return reportRequest(cmd, c, request)
			}
			list, err := config.Settings(c, origins, first(args))
			if err != nil {
				return usage("%w", err)
			}
			return printReport(cmd, list, func(w io.Writer) error { return config.Explain(w, list) }, false)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().IntVar(&status, "status", 0, "`status` of an upstream's answer, such as 503")
	cmd.Flags().StringVar(&request, "request", "", "`file` of a captured request; - is standard input")
	return jsonFlag(cmd)
}

func newConfigSchema() *cobra.Command {
	return schemaCommand("the configuration file", ", for editors and other\ntools. It is always JSON.", "semel config schema > semel.schema.json", config.Schema)
}

// schemaCommand prints the JSON Schema of something.
func schemaCommand(of, more, example string, schema func() []byte) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of " + of,
		Long:    "Print the JSON Schema (2020-12) of " + of + more,
		Example: "  " + example,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(schema())
			return err
		},
	}
}
