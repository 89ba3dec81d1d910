package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// settingError is an error that a setting is to blame for.
type settingError struct {
	path string
	err  error
}

func (e *settingError) Error() string { return e.path + ": " + e.err.Error() }
func (e *settingError) Unwrap() error { return e.err }

// at blames a setting for an error, or a setting of a section.
func at(path string, err error) error {
	if inner, ok := err.(*settingError); ok {
		path, err = path+"."+inner.path, inner.err
	}
	return &settingError{path, err}
}

// Check finds what would keep [New] from starting a service with a configuration, whatever the
// moment: it reads every file that a start reads, and puts everything together but the store
// and the listeners. It changes nothing, opens no store and asks nobody. New begins with it, so
// a configuration that it accepts can only fail for other reasons: an address in use, a
// directory that another process uses, a database that doesn't answer.
//
// The error joins those of single settings; [Blame] says where in the file they are.
func Check(cfg *config.Config) error {
	var errs []error
	try := func(path string, err error) {
		if err != nil {
			errs = append(errs, at(path, err))
		}
	}
	tls := func(path string, files config.TLS) {
		if files.Cert != "" {
			_, err := tlsConfig(files)
			try(path, err)
		}
	}
	tls("listen.tls", cfg.Listen.TLS)
	tls("admin.tls", cfg.Admin.TLS)
	try("store.url", checkStore(cfg.Store))
	if cfg.Archives() && cfg.Archive.In != "store" {
		try("archive.dir", canBeDirectory(cfg.Archive.Dir))
	}
	return errors.Join(append(errs, assemble(cfg, nil, func(s *Server) error {
		_, err := newOutbox(s.engine, &cfg.Dispatch, s.destinations(s.gen), observeMessages(s.log))
		return err
	}))...)
}

// assemble puts a service together over a store that stands in for the real one, calls use
// with it, and takes it apart again. Without evidence in the configuration it has witness.
func assemble(cfg *config.Config, witness semel.Witness, use func(s *Server) error) (err error) {
	s := &Server{log: slog.New(slog.DiscardHandler), store: standIn(cfg.Store)}
	defer s.store.Close()
	opts := &semel.Options{Quotas: quotasOf(&cfg.Quotas), PurgeRate: purgeRate, Witness: witness}
	if s.archives = cfg.Archives(); s.archives {
		opts.Archive = func(context.Context, []semel.Record) error { return nil }
	}
	if cfg.Evidence.KeyFile != "" {
		keys, _, err := evidenceKeys(&cfg.Evidence)
		if err != nil {
			return err
		}
		if err := canBeWritten(cmp.Or(cfg.Evidence.SignedFile, cfg.Evidence.KeyFile+".signed")); err != nil {
			return at("evidence.signed_file", err)
		}
		if dir := cfg.Evidence.CheckpointDir; dir != "" {
			if err := canBeDirectory(dir); err != nil {
				return at("evidence.checkpoint_dir", err)
			}
		}
		if s.store.Extras().Evidence != nil {
			log, err := evidence.New(s.store, keys, nil)
			if err != nil {
				return at("evidence", err)
			}
			defer log.Close(context.Background())
			opts.Witness = log
		}
	}
	if s.engine, err = semel.New(s.store, opts); err != nil {
		return err
	}
	defer s.engine.Close(context.Background())
	s.dataAPI, err = api.New(api.Options{Engine: s.engine, Observer: api.NewObserver(s.store), Identify: s.caller})
	if err != nil {
		return err
	}
	defer s.dataAPI.Close()
	if s.gen, _, err = s.build(cfg); err != nil {
		return err
	}
	return errors.Join(use(s), s.gen.close(context.Background()))
}

// standIn is a store in memory that can do what the configured kind of store can.
func standIn(c config.Store) semel.Store {
	st := memstore.New()
	x := st.Extras()
	if c.Redis() {
		x.Evidence = nil
	}
	return &like{st, x}
}

type like struct {
	*memstore.Store
	extras store.Extras
}

func (l *like) Extras() store.Extras { return l.extras }

// canBeDirectory reports why a directory could not be made, or is none.
func canBeDirectory(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at:
			continue
		case errors.Is(err, syscall.ENOTDIR):
			continue // a parent is a file, and is named
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is a file: name a directory that can be made, or is one", at)
		}
		return nil
	}
}

// canBeWritten reports why a file could not be written where it is to be.
func canBeWritten(name string) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", name)
	}
	dir := filepath.Dir(name)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return err
}

// Blame turns an error of [Check] or [New] into the mistakes of a configuration, each at
// the place of its setting, and those in other files at theirs. It returns nil if no setting
// is to blame for some of it.
func Blame(err error, origins *config.Origins) config.Errors {
	switch err := err.(type) {
	case config.Errors:
		return err
	case *settingError:
		if own, ok := errors.AsType[config.Errors](err); ok {
			return own
		}
		return config.Errors{origins.Blame(err.path, strings.ReplaceAll(err.err.Error(), "\n", "; "), "")}
	case interface{ Unwrap() []error }:
		var list config.Errors
		for _, one := range err.Unwrap() {
			found := Blame(one, origins)
			if found == nil {
				return nil
			}
			list = append(list, found...)
		}
		return list
	}
	return nil
}
