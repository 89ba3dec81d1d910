package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/openapi"
)

func openapiCommand() *cobra.Command {
	return group(&cobra.Command{Use: "openapi", Short: "Describe a guarded API to its callers"}, openapiAnnotate())
}

func openapiAnnotate() *cobra.Command {
	var header string
	var optional bool
	cmd := &cobra.Command{
		Use:   "annotate FILE",
		Short: "Write key, refusals and the replay's header into the description of an API",
		Long: `Write into each POST and PATCH of a description in OpenAPI 3 what callers of a guarded
route need to know: the header with the key, the refusals 400, 409 and 422, and the header
of replays. What the description says already stays, with its order and its comments.`,
		Example: `  semel openapi annotate api.yaml > guarded.yaml`,
		Args:    oneArg("which description? Give its file; - is standard input"),
	}
	cmd.Flags().StringVar(&header, "header", semelhttp.DefaultKeyHeader, "`name` of the header with the key")
	cmd.Flags().BoolVar(&optional, "optional", false, "requests without a key pass")
	return describing(cmd, func(d *openapi.Document) ([]byte, error) {
		d.Annotate(header, semelhttp.IETF().Marker, optional)
		return d.Text()
	})
}

func configFromOpenAPI() *cobra.Command {
	var upstream string
	cmd := &cobra.Command{
		Use:   "from-openapi FILE",
		Short: "Propose routes for the API that a description has",
		Long: `Propose the configuration of a service in front of an API, from its description in
OpenAPI 3: a route and an operation for each POST and PATCH, and one that lets the rest
pass. Read it before you use it: whether an operation moves money is guessed from its path.`,
		Example: `  semel config from-openapi api.yaml --upstream http://127.0.0.1:3000 > semel.yaml`,
		Args:    oneArg("which description? Give its file; - is standard input"),
	}
	cmd.Flags().StringVar(&upstream, "upstream", "", "`URL` of the API (default the first of its servers)")
	return describing(cmd, func(d *openapi.Document) ([]byte, error) {
		_, server := d.Changing()
		if upstream = cmp.Or(upstream, server); upstream == "" {
			return nil, usage("the description names no server: give the API's URL by --upstream")
		}
		return d.Routes(upstream)
	})
}

// describing makes a command read the description that its argument names, and print a text.
func describing(cmd *cobra.Command, f func(*openapi.Document) ([]byte, error)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := readAll(cmd, args[0])
		if err != nil {
			return err
		}
		d, err := openapi.Parse(text)
		if err != nil {
			return usage("%s: %w", inputName(args[0]), err)
		}
		if text, err = f(d); err == nil {
			_, err = cmd.OutOrStdout().Write(text)
		}
		return err
	}
	return cmd
}
