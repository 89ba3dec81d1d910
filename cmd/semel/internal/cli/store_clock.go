package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service"
)

func newStoreAcceptClock() *cobra.Command {
	var src recordSource
	var yes bool
	cmd := &cobra.Command{
		Use:   "accept-clock",
		Short: "Accept the store's clock after a jump",
		Long: `Accept the clock of a store as it is now: the server's, or for a directory this
machine's. If the clock jumps ahead, or nobody used the store for a while, the store
doesn't follow until the jump has lasted as long as it is big, at most an hour. Until
then nothing expires, and readiness and the log say so. You don't have to do anything;
this command ends the wait. Check the clock first: records that expire are purged, and
their calls can run again.

For a store on a server give --store or --config; all its services follow within
seconds. If a service has a directory open, the command asks that service, which it
finds as 'semel records' does; you must be an admin there.`,
		Example: `  semel store accept-clock --yes
  semel store accept-clock --store postgres://semel@db/semel --yes
  semel store accept-clock --url http://127.0.0.1:8481 --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usage("this lets records expire: check the clock first, then add --yes")
			}
			var store semel.Store
			at, tokenFile, err := src.place(cmd, func() (io.Closer, error) {
				cfg, err := src.settings(cmd)
				if err != nil {
					return nil, err
				}
				store, err = openConfigured(cmd.Context(), cfg.Store, service.OpenStore, true)
				return store, err
			})
			switch {
			case err != nil:
				return exitWith(err)
			case at != "":
				return acceptAt(cmd, at, tokenFile)
			}
			if k := store.Extras().Clock; k == nil {
				err = errors.New("the clock of this store can't jump")
			} else if state, aerr := k.AcceptClock(cmd.Context()); aerr != nil {
				err = aerr
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), service.AcceptedClock(state))
			}
			return errors.Join(err, store.Close())
		},
	}
	src.add(cmd.Flags())
	cmd.Flags().BoolVar(&yes, "yes", false, "skip the question")
	return cmd
}

// acceptAt makes a running service accept the clock of its store.
func acceptAt(cmd *cobra.Command, at, tokenFile string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
	defer cancel()
	service, err := asked(at, tokenFile)
	if err != nil {
		return err
	}
	status, text, err := service.Send(ctx, http.MethodPost, "/v1/accept-clock")
	if err != nil {
		return exitWith(err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("the service refuses (%d %s): %s", status, http.StatusText(status), strings.TrimSpace(string(text)))
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}
