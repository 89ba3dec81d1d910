package server

import (
	"fmt"
	"log/slog"

	"github.com/semelhq/semel/store/pebblestore"
)

// fillingUp reports whether less than a tenth of a disk is free, or so little that no
// record is added.
func fillingUp(r pebblestore.Room) bool { return r.Full || r.Free < r.Total/10 }

// roomOf is how full the disk of the embedded store is. A node without room stays ready:
// it has the answers to what was executed, and nobody else has.
func roomOf(st *pebblestore.Store) check {
	c := check{name: "disk"}
	r, err := st.Room()
	switch {
	case err != nil:
		c.detail = "not known: " + err.Error()
	case r.Full:
		c.detail = fmt.Sprintf("FULL: no new call is taken until there is more room; %d of %d bytes are free", r.Free, r.Total)
	case fillingUp(r):
		c.detail = fmt.Sprintf("filling up: %d of %d bytes are free", r.Free, r.Total)
	default:
		c.detail = fmt.Sprintf("%d of %d bytes are free", r.Free, r.Total)
	}
	return c
}

// watchRoom warns when the disk of the embedded store fills up, and says when it has
// room again.
func (s *Server) watchRoom() {
	st, ok := s.store.(*pebblestore.Store)
	if !ok {
		return
	}
	r, err := st.Room()
	if err != nil {
		return // readiness says so
	}
	free, total := slog.Uint64("free", r.Free), slog.Uint64("total", r.Total)
	switch tight := fillingUp(r); {
	case tight == s.tight.Swap(tight):
	case tight:
		s.log.Warn("the disk of the store is filling up", free, total)
	default:
		s.log.Info("the disk of the store has room again", free, total)
	}
}
