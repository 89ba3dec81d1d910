package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func newHealthcheck() *cobra.Command {
	var src recordSource
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that a running service is ready",
		Long: `Ask a running service whether it is ready, or with --live only whether it serves,
for images that have no other client. The exit code is 0 if so, otherwise 1. With the
token of somebody who has a role, it also tells what the checks found.

The service is the one that --url, --context or the variable SEMEL_URL names, or the
current context, see 'semel context'. Without any of these it is the one that has the
configured store open, or else the one at the configured admin address, which is
127.0.0.1:8481 if nothing is configured. A probe that must ask its own service has
--url.`,
		Example: `  semel healthcheck
  semel healthcheck --url http://127.0.0.1:8481 --live`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, tokenFile, err := src.running(cmd)
			if err != nil {
				return err
			}
			path := "/readyz?verbose"
			if live {
				path = "/livez"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			resp, text, err := sendPlain(ctx, http.MethodGet, at, path, tokenFile)
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				fmt.Fprintf(cmd.ErrOrStderr(), "semel: not ready (%s)\n%s", resp.Status, text)
				return errReported
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	flags := cmd.Flags()
	src.add(flags)
	flags.BoolVar(&live, "live", false, "ask only whether it serves")
	flags.DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	return cmd
}
