package service

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/evidence"
)

type audited struct {
	faults  int
	records int
	at      time.Time
	kinds   string // such as "1 missing, 2 changed"
	err     error  // it couldn't be finished
}

// watchAudit compares the records with the evidence log at each evidence.audit_every (IDS-XV.6).
// It reads all of both, so one node of a cluster is enough.
func (s *Server) watchAudit(ctx context.Context) {
	pause := time.Duration(s.current().cfg.Evidence.AuditEvery)
	if s.evidence == nil || pause == 0 {
		return
	}
	every(ctx, pause, func() {
		found, err := s.evidence.Audit(ctx, nil)
		if ctx.Err() != nil {
			return // it was stopped
		}
		a := &audited{found.Found, found.Records, time.Now().UTC().Truncate(time.Second), kindsOf(found.Faults), err}
		s.gauges.audited.Store(a)
		switch {
		case err != nil:
			s.log.Warn("the records couldn't be compared with the evidence log", slog.Any("error", err))
		case a.faults > 0:
			s.log.Error("records aren't what the evidence log says: see semel store audit", slog.Int("records", a.faults), slog.String("kinds", a.kinds))
		}
	})
}

func kindsOf(faults []evidence.AuditFault) string {
	n := map[string]int{}
	for i := range faults {
		n[string(faults[i].Kind)]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d %s", n[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// auditCheck is what the last audit found. A fault doesn't make the node unready: each call that
// it concerns is held or answered by its record.
func (s *Server) auditCheck() Finding {
	c := Finding{Name: "audit", running: true}
	switch a := s.gauges.audited.Load(); {
	case a == nil:
		c.Detail = "none yet"
	case a.err != nil:
		c.Amiss, c.Detail = true, "the last one failed: "+a.err.Error()
	case a.faults > 0:
		c.Amiss, c.Detail = true, fmt.Sprintf("%d records aren't what the evidence log says (%s): run semel store audit", a.faults, a.kinds)
	default:
		c.Detail = fmt.Sprintf("%d records at %s", a.records, a.at.Format(time.RFC3339))
	}
	return c
}
