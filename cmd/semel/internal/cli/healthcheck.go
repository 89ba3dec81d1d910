package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newHealthcheck() *cobra.Command {
	var url string
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running service whether it is ready",
		Long: `Ask a running service whether it is ready, or with --live only whether it serves,
for images that have no other client. The exit code is 0 if so, otherwise 1.`,
		Example: `  semel healthcheck
  semel healthcheck --url http://127.0.0.1:8481 --live`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/readyz?verbose"
			if live {
				path = "/livez"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+path, nil)
			if err != nil {
				return usage("--url: %w", err)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
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
	flags.StringVar(&url, "url", "http://127.0.0.1:8481", "`URL` of the admin listener")
	flags.BoolVar(&live, "live", false, "ask only whether it serves")
	flags.DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	return cmd
}
