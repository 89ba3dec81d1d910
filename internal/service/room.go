package service

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// fillingUp reports whether less than a tenth of a disk is free, or too little for
// another record.
func fillingUp(r pebblestore.Room) bool { return r.Full || r.Free < r.Total/10 }

// roomOf checks how full the embedded store's disk is. Without free space a node accepts no
// new calls, so it gets no traffic. A restart would not free any space.
func roomOf(st *pebblestore.Store) Finding {
	c := Finding{Name: "disk", outside: true}
	r, err := st.Room()
	if err != nil {
		c.Detail = "not known: " + err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("%s of %s are free", strictyaml.Rounded(r.Free), strictyaml.Rounded(r.Total))
	switch {
	case r.Full:
		c.Err = errors.New("FULL: no new call is accepted until there is more space; " + c.Detail)
	case fillingUp(r):
		c.Amiss, c.Detail = true, "filling up: "+c.Detail
	}
	return c
}

// watchRoom warns when the embedded store's disk fills up, and logs when it has space
// again.
func (s *Server) watchRoom() {
	st, ok := store.As[*pebblestore.Store](s.store)
	if !ok {
		return
	}
	r, err := st.Room()
	if err != nil {
		return // readiness reports it
	}
	free, total := slog.Uint64("free", r.Free), slog.Uint64("total", r.Total)
	switch tight := fillingUp(r); {
	case tight == s.tight.Swap(tight):
	case tight:
		s.log.Warn("the disk of the store is filling up", free, total)
	default:
		s.log.Info("the disk of the store has space again", free, total)
	}
}
