package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/client"
)

func newHealthcheck() *cobra.Command {
	var src recordSource
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that a running service is ready",
		Long: `Check that a running service is ready, or with --live only that it serves requests. Use it
in images without curl. The exit code is 0 if the service is ready, 5 if something other
than Semel answers, and otherwise 1. With a token that has a role, it also prints each check.

` + whichService + ` For a probe of one particular service, give --url.`,
		Example: `  semel healthcheck
  semel healthcheck --url http://127.0.0.1:8481 --live`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, _, err := src.running(cmd)
			if err != nil {
				return err
			}
			path := "/readyz?verbose"
			if live {
				path = "/livez"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			status, text, err := service.Send(ctx, http.MethodGet, path)
			if _, other := errors.AsType[*client.AnswerError](err); other {
				err = exitWith(err)
			}
			if err != nil {
				return err
			}
			if status != http.StatusOK {
				fmt.Fprintf(cmd.ErrOrStderr(), "semel: not ready (%d %s)\n%s", status, http.StatusText(status), text)
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
