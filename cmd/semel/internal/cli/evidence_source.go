package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/tally"
)

// An evidenceLog is what commands look at: the log of a service, which a [client.Client]
// reads, or of a store, which a localLog does. Nothing verifies it.
type evidenceLog interface {
	// Evidence is [client.Client.Evidence].
	Evidence(ctx context.Context, about client.EvidenceName) ([]client.EvidenceEntry, error)
	// ExportEvidence is [client.Client.ExportEvidence].
	ExportEvidence(ctx context.Context, w io.Writer, what client.EvidenceExport) error
	// A Reader has the calls that have a name.
	tally.Reader
	io.Closer
}

// evidenceSource says which log a command looks at.
type evidenceSource struct {
	recordSource
	keys string
}

// add adds the flags. A store needs the secret keys to find entries.
func (s *evidenceSource) add(cmd *cobra.Command) {
	s.recordSource.add(cmd.Flags())
	cmd.Flags().StringVar(&s.keys, "keys", "", secretKeys)
}

const secretKeys = "`file` with the log's secret keys (default evidence.key_file)"

// with opens the log, lets f look at it, and closes it. With its keys it signs a checkpoint of
// all entries first, as the last service did unless it crashed.
func (s *evidenceSource) with(cmd *cobra.Command, f func(ctx context.Context, log evidenceLog) error) error {
	return s.open(cmd, true, f)
}

func (s *evidenceSource) open(cmd *cobra.Command, sign bool, f func(ctx context.Context, log evidenceLog) error) error {
	var log evidenceLog
	at, tokenFile, err := s.place(cmd, func() (io.Closer, error) {
		cfg, err := s.settings(cmd)
		if err != nil {
			return nil, err
		}
		l, err := openLog(cmd, cfg, s.keys, sign, true)
		log = l
		return l, err
	})
	if err == nil && at != "" {
		log, err = s.ask(at, tokenFile)
	}
	if err != nil {
		return exitWith(err)
	}
	return exitWith(errors.Join(f(cmd.Context(), log), log.Close()))
}

// localLog is the log of a store.
type localLog struct {
	*semel.Engine
	log   *evidence.Log // nil without keys
	store semel.Store
}

// openLog opens the log of a configured store. Keys is the file of its secret keys, where that
// isn't the configured one. With sign and keys it signs a checkpoint. A command that asks can
// ask a service instead.
func openLog(cmd *cobra.Command, cfg *config.Config, keys string, sign, asks bool) (*localLog, error) {
	store, err := openConfigured(cmd.Context(), cfg.Store, service.OpenStore, asks)
	if err != nil {
		return nil, err
	}
	l := &localLog{store: store}
	if store.Extras().Evidence == nil {
		err = errors.New("this store keeps no evidence")
	} else if sign {
		l.log, err = openEvidence(cfg, keys, store, slog.DiscardHandler)
	}
	if err == nil && l.log != nil {
		err = l.log.Integrate(cmd.Context())
	}
	if err == nil {
		l.Engine, err = semel.New(store, nil)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// openEvidence opens the evidence of a configured store, if there are keys for it: the configured
// ones, or those in the file keys. A command publishes no checkpoint and asks no witness; the
// service does.
func openEvidence(cfg *config.Config, keys string, store semel.Store, h slog.Handler) (*evidence.Log, error) {
	settings := cfg.Evidence
	settings.KeyFile = cmp.Or(keys, settings.KeyFile)
	settings.CheckpointDir, settings.Witnesses = "", nil
	return service.OpenEvidence(&settings, store, slog.New(h))
}

// Evidence is [client.Client.Evidence].
func (l *localLog) Evidence(ctx context.Context, about client.EvidenceName) (all []client.EvidenceEntry, err error) {
	if l.log == nil {
		return nil, usage("%w", errNeedsKeys)
	}
	reader, err := evidence.NewReader(ctx, l.store)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	if about.ID != (semel.ID{}) {
		numbers, err = reader.Find(ctx, l.log.Subject(about.ID))
	} else {
		numbers, err = reader.FindCalls(ctx, l.log.Name(about.Tenant, about.Name))
	}
	for _, n := range numbers {
		if err != nil {
			break
		}
		e, failed := reader.Entry(ctx, n)
		all, err = append(all, client.EvidenceEntry{N: n, Leaf: e.Leaf, Opening: e.Opening}), failed
	}
	return all, err
}

// ExportEvidence is [client.Client.ExportEvidence].
func (l *localLog) ExportEvidence(ctx context.Context, w io.Writer, what client.EvidenceExport) error {
	opts := &evidence.ExportOptions{Only: what.Entries, NoOpenings: what.NoOpenings}
	if what.Tenant != nil {
		if l.log == nil {
			return usage("%w", errNeedsKeys)
		}
		opts.Tenant = l.log.Tenant(*what.Tenant)
	}
	reader, err := evidence.NewReader(ctx, l.store)
	if err != nil {
		return err
	}
	return reader.Export(ctx, w, opts)
}

// Close closes the store.
func (l *localLog) Close() error {
	var err error
	if l.Engine != nil {
		err = l.Engine.Close(context.Background())
	}
	return errors.Join(err, l.store.Close())
}
