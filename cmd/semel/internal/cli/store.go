package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

func storeCommand() *cobra.Command {
	return group(&cobra.Command{Use: "store", Short: "Inspect a store, audit it against its evidence, record restores"},
		newStoreStatus(), newStoreAudit(), newStoreEpoch(), newStoreAcceptClock())
}

func newStoreStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the durability of a store by its live settings",
		Long: `Show the durability of a store by its live settings: its level, the settings behind
it, and what the strict profile would refuse. The levels, from the weakest, are
unknown, process, cache-grade, relaxed, disk and replicated. The exit code is 1 if
something is unsafe.

A directory must exist and isn't changed. This works on a full disk, too. While a service
has the directory open, 'semel doctor --url' checks the store instead.

The JSON has store, level, settings (name, value), unsafe and epoch, and for a
directory free and total, the bytes of its disk.`,
		Example: `  semel store status --store pebble:./semel-data
  semel store status --config semel.yaml --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := lookAtStore(cmd)
			if err != nil {
				return err
			}
			return printReport(cmd, s, s.print, len(s.Unsafe) > 0)
		},
	}
	return jsonFlag(configFlags(cmd))
}

// storeStatus is what semel store status --json prints.
type storeStatus struct {
	Store string `json:"store"`
	store.Durability
	Epoch time.Time `json:"epoch,omitzero"`
	// Free and Total are the bytes of a directory's disk, if the system knows them.
	Free  uint64 `json:"free,omitempty"`
	Total uint64 `json:"total,omitempty"`
}

func lookAtStore(cmd *cobra.Command) (*storeStatus, error) {
	cfg, st, engine, err := openStore(cmd, service.LookAtStore, false)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	s := &storeStatus{Store: cfg.Store.Name()}
	if s.Epoch, err = engine.Internal().LoadEpoch(cmd.Context()); err != nil {
		return nil, err
	}
	if s.Durability, err = service.DurabilityOf(cmd.Context(), st); err != nil {
		return nil, err
	}
	if embedded, ok := st.(*pebblestore.Store); ok {
		room, _ := embedded.Room()
		s.Free, s.Total = room.Free, room.Total
	}
	return s, nil
}

// print shows the status to people.
func (s *storeStatus) print(out io.Writer) error {
	fmt.Fprintf(out, "store  %s\nlevel  %s\n", s.Store, s.Level)
	for _, set := range s.Settings {
		fmt.Fprintf(out, "       %s = %q\n", set.Name, set.Value)
	}
	if s.Total > 0 {
		fmt.Fprintf(out, "disk   %s of %s are free\n", strictyaml.Rounded(s.Free), strictyaml.Rounded(s.Total))
	}
	if !s.Epoch.IsZero() {
		fmt.Fprintf(out, "epoch  %s\n", s.Epoch.Format(time.RFC3339))
	}
	for _, sentence := range s.Unsafe {
		fmt.Fprintf(out, "unsafe %s\n", sentence)
	}
	return nil
}

func newStoreEpoch() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Record that the store was restored from a backup",
		Long: `Record that the store was restored from a backup just now. Records made after the
backup are gone, and their calls may have run. Until its operation's window has
passed, a call that was first sent before the restore and has no record is refused
(412) instead of running again. Semel knows when a call was first sent if it has
first_sent, or a UUIDv7 as its key. Other calls run.

Run it after the restore and before the first node starts.`,
		Example: `  semel store new-epoch --store postgres://semel@db/semel --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usage("this refuses calls that were first sent before now: add --yes")
			}
			_, store, engine, err := openStore(cmd, service.OpenStore, true)
			if err != nil {
				return err
			}
			defer store.Close()
			epoch, err := engine.Internal().NewEpoch(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the epoch began %s\n", epoch.Format(time.RFC3339Nano))
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "skip the question")
	return configFlags(cmd)
}

// mustExist refuses an embedded store that doesn't exist, which opening would create. or is what
// the command can do instead.
func mustExist(url, or string) error {
	dir, embedded := strings.CutPrefix(url, "pebble:")
	if names, err := os.ReadDir(dir); embedded && (err != nil || len(names) == 0) {
		return missing("there is no store in " + dir + ": name it with --store pebble:DIR" + or)
	}
	return nil
}

// openStore opens the configured store, at any durability, and an engine on it that runs nothing.
// With witness, the evidence log gets what the command does, if the configuration names its keys.
func openStore(cmd *cobra.Command, open func(context.Context, config.Store) (semel.Store, error), witness bool) (cfg *config.Config, store semel.Store, engine *semel.Engine, err error) {
	if cfg, _, err = loadSource(cmd, configured(cmd)); err != nil {
		return nil, nil, nil, err
	}
	if store, err = openConfigured(cmd.Context(), cfg.Store, open, false); err != nil {
		return nil, nil, nil, err
	}
	opts := &semel.Options{}
	if witness && store.Extras().Evidence != nil {
		log, lerr := openEvidence(cfg, "", store, slog.NewTextHandler(cmd.ErrOrStderr(), nil))
		if err = lerr; log != nil {
			opts.Witness = log
		}
	}
	if err == nil {
		engine, err = semel.New(store, opts)
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, store.Close())
	}
	return cfg, store, engine, nil
}

// openConfigured opens an existing store, without the strict profile and without migrating. If it
// is in use and the command can ask a service instead, asks, the error says how.
func openConfigured(ctx context.Context, at config.Store, open func(context.Context, config.Store) (semel.Store, error), asks bool) (semel.Store, error) {
	if err := mustExist(at.URL, ""); err != nil {
		return nil, err
	}
	at.Profile, at.Migrate = "standard", false
	st, err := open(ctx, at)
	return st, inUse(err, at.URL, asks)
}
