package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/seldom"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
)

// maxKeyFile bounds the file with the log's keys, in bytes.
const maxKeyFile = 1 << 20

// OpenEvidence makes the evidence log that a configuration names, on a store. It is nil
// without keys; operations that demand evidence are then refused, as they are on a store
// that can't keep it.
func OpenEvidence(c *config.Evidence, st semel.Store, log *slog.Logger) (*evidence.Log, error) {
	x := st.Extras()
	if c.KeyFile == "" || x.Evidence == nil && x.NoEvidence == nil {
		return nil, nil
	}
	keys, keepers, err := evidenceKeys(c)
	if err != nil {
		return nil, err
	}
	opts := &evidence.Options{
		Every: time.Duration(c.Every), KeepOpenings: time.Duration(c.KeepOpenings), Keepers: keepers,
		SignedFile: cmp.Or(c.SignedFile, c.KeyFile+".signed"),
		OnError:    evidenceErrors(log),
	}
	if c.CheckpointDir != "" {
		dir, err := evidence.NewDirectory(c.CheckpointDir)
		if err != nil {
			return nil, err
		}
		opts.Keepers = append([]evidence.Keeper{dir}, opts.Keepers...)
	}
	return evidence.New(st, keys, opts)
}

func evidenceKeys(c *config.Evidence) (*evidence.Keys, []evidence.Keeper, error) {
	text, err := auth.ReadFile(c.KeyFile, maxKeyFile)
	if err != nil {
		return nil, nil, at("evidence.key_file", err)
	}
	keys, err := evidence.ParseKeys(text)
	if err != nil {
		return nil, nil, at("evidence.key_file", fmt.Errorf("%s: %w", c.KeyFile, err))
	}
	var keepers []evidence.Keeper
	for i, w := range c.Witnesses {
		key, err := evidence.ParseCosignerKey(w.Key)
		if err != nil {
			return nil, nil, at(fmt.Sprintf("evidence.witnesses[%d].key", i), err)
		}
		remote, err := evidence.NewRemoteWitness(w.URL, key, nil)
		if err != nil {
			return nil, nil, at(fmt.Sprintf("evidence.witnesses[%d].url", i), err)
		}
		keepers = append(keepers, remote)
	}
	return keys, keepers, nil
}

// evidenceErrors logs the errors of the evidence log, which tries again every second, and so
// meets the same error again: at once, and then every minute, or every hour if the error lasts
// until a restart.
func evidenceErrors(log *slog.Logger) func(error) {
	teller := func(level slog.Level, every time.Duration) func(kind string, err error) {
		return seldom.New(every, func(err error, _ int) {
			log.LogAttrs(context.Background(), level, "evidence", slog.Any("error", err))
		}).Tell
	}
	passing, lasting := teller(slog.LevelWarn, time.Minute), teller(slog.LevelError, time.Hour)
	return func(err error) {
		switch {
		case errors.Is(err, evidence.ErrTampered):
			lasting("tampered", err)
		case errors.Is(err, evidence.ErrFork): // its text has the size of the log
			lasting("fork", err)
		default:
			passing(err.Error(), err)
		}
	}
}

// runEvidence signs the log until you call end. Call it after everything else has ended,
// so that the last entries are signed too.
func (s *Server) runEvidence() (end func(ctx context.Context) error) {
	if s.evidence == nil {
		return func(context.Context) error { return nil }
	}
	stop, ended := inBackground(s.evidence.Run)
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
