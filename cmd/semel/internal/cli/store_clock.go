package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/server"
)

func newStoreAcceptClock() *cobra.Command {
	var flags configFlags
	var url, tokenFile string
	var yes bool
	cmd := &cobra.Command{
		Use:   "accept-clock",
		Short: "Say that a store's clock is right, although it went ahead",
		Long: `Say that the clock by which a store is kept is right: that of the server or, of a
directory, of this machine. When it goes ahead at once, or nobody has used the store
for a while, the store doesn't follow before that has lasted as long as it is long,
at most an hour. Until then nothing expires, and readiness and log say so. Nothing
has to be done about it; this ends the wait. Look at the clock first: what expires
is purged, and its calls can run again.

A store on a server is told directly, and all its services follow within seconds. A
directory that a service has open is told by that service, at the --url of its admin
listener; the caller must be an admin there.`,
		Example: `  semel store accept-clock --store postgres://semel@db/semel --yes
  semel store accept-clock --url http://127.0.0.1:8481 --yes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !yes:
				return usage("this lets records expire: look at the clock first, then say --yes")
			case url == "" && tokenFile != "":
				return usage("--token-file needs --url")
			case url != "":
				return acceptAt(cmd, url, tokenFile)
			}
			_, st, _, err := openStore(cmd, &flags, server.OpenStore)
			if err != nil {
				return err
			}
			if k := st.Extras().Clock; k == nil {
				err = errors.New("the store has no clock that leaps")
			} else if state, aerr := k.AcceptClock(cmd.Context()); aerr != nil {
				err = aerr
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), server.AcceptedClock(state))
			}
			return errors.Join(err, st.Close())
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&url, "url", "", "`URL` of the admin listener of a service")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`file` with the token for it, instead of $SEMEL_TOKEN")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.MarkFlagsMutuallyExclusive("url", "store")
	cmd.MarkFlagsMutuallyExclusive("url", "config")
	return cmd
}

// acceptAt tells a running service to accept the clock of its store.
func acceptAt(cmd *cobra.Command, url, tokenFile string) error {
	token := os.Getenv("SEMEL_TOKEN")
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return err
		}
		token = strings.TrimSpace(string(text))
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(url, "/")+"/v1/accept-clock", nil)
	if err != nil {
		return usage("--url: %w", err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
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
		return fmt.Errorf("the service refuses (%s): %s", resp.Status, strings.TrimSpace(string(text)))
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}
