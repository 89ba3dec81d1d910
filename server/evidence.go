package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/server/auth"
	"github.com/semelhq/semel/server/config"
)

// maxKeyFile bounds the file with the keys of the log, in bytes.
const maxKeyFile = 1 << 20

// OpenEvidence makes the evidence log that a configuration names, on a store. It is
// nil where there are no keys, and operations that demand evidence are then refused,
// as they are on a store that can't keep it.
func OpenEvidence(c *config.Evidence, st semel.Store, log *slog.Logger) (*evidence.Log, error) {
	es, ok := st.(evidence.Store)
	if c.KeyFile == "" || !ok {
		return nil, nil
	}
	if r, ok := st.(interface{ RefusesEvidence() error }); ok {
		if err := r.RefusesEvidence(); err != nil {
			return nil, fmt.Errorf("evidence: %w", err)
		}
	}
	text, err := auth.ReadFile(c.KeyFile, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	keys, err := evidence.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.KeyFile, err)
	}
	opts := &evidence.Options{
		Every: time.Duration(c.Every), KeepOpenings: time.Duration(c.KeepOpenings),
		OnError: func(err error) {
			level := slog.LevelWarn
			if errors.Is(err, evidence.ErrTampered) || errors.Is(err, evidence.ErrFork) {
				level = slog.LevelError
			}
			log.LogAttrs(context.Background(), level, "evidence", slog.Any("error", err))
		},
	}
	if c.CheckpointDir != "" {
		dir, err := evidence.NewDirectory(c.CheckpointDir)
		if err != nil {
			return nil, err
		}
		opts.Keepers = append(opts.Keepers, dir)
	}
	for _, w := range c.Witnesses {
		key, err := evidence.ParseCosignerKey(w.Key)
		if err != nil {
			return nil, err
		}
		remote, err := evidence.NewRemoteWitness(w.URL, key, nil)
		if err != nil {
			return nil, err
		}
		opts.Keepers = append(opts.Keepers, remote)
	}
	return evidence.New(es, keys, opts)
}

// witness is the log as the engine wants it: nothing where there is none.
func witness(l *evidence.Log) semel.Witness {
	if l == nil {
		return nil
	}
	return l
}

// runEvidence signs the log until the function that it returns is called, after
// everything else has ended, which signs what that left.
func (s *Server) runEvidence() (end func(ctx context.Context) error) {
	if s.evidence == nil {
		return func(context.Context) error { return nil }
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.evidence.Run(ctx) // which ends because it was stopped
	}()
	return func(end context.Context) error {
		err := s.evidence.Close(end)
		stop()
		select {
		case <-ended:
		case <-end.Done():
		}
		return err
	}
}
