package service

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/semelhq/semel/internal/service/config"
)

var (
	errStopping = errors.New("the service is stopping")
	errNoReload = errors.New("the service was started without a configuration file to read again")
)

// Reload reads the configuration again and applies it, all or nothing. It reports whether
// anything changed. A change of something fixed, such as the listeners and the store, is
// an error that names it.
func (s *Server) Reload() (changed bool, err error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	if s.load == nil {
		return false, errNoReload
	}
	s.tell(s.notify.Reloading())
	defer func() {
		s.reloadFailed.Store(err != nil)
		s.tell(s.notify.Ready())
	}()
	cfg, err := s.load()
	if err != nil {
		return false, err
	}
	old := s.current()
	diff := config.Diff(old.cfg, cfg)
	if len(diff) == 0 {
		return false, nil
	}
	if fixed := config.NeedsRestart(diff); len(fixed) > 0 {
		return false, fmt.Errorf("changing %s needs a restart", strings.Join(fixed, ", "))
	}
	next, commit, err := s.build(cfg)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.gen = next
	s.mu.Unlock()
	commit()
	go old.retire()
	s.log.Info("reloaded", slog.Any("changed", diff))
	return true, nil
}

// current is the configuration in force; it may be replaced meanwhile.
func (s *Server) current() *generation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gen
}

// enter is the configuration in force, for one request. Call inFlight.Done when you are
// done.
func (s *Server) enter() *generation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.gen.inFlight.Add(1)
	return s.gen
}

func (s *Server) tell(err error) {
	if err != nil {
		s.log.Warn("the service manager could not be notified", slog.Any("error", err))
	}
}
