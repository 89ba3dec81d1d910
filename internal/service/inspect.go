package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
)

// Inspection is the store of a configuration, open for reading, and the checks that a service
// on it would report. Nothing is changed. Its methods may be called concurrently.
type Inspection struct{ s *Server }

// Inspect opens the store of a configuration. It doesn't check the configuration itself; see
// [Check]. An error is that of opening.
func Inspect(ctx context.Context, cfg *config.Config) (*Inspection, error) {
	s := &Server{storeName: cfg.Store.Name(), gen: &generation{cfg: cfg, auth: &auth.Authenticator{}, adminToken: &auth.Authenticator{}}}
	var err error
	if s.store, err = LookAtStore(ctx, cfg.Store); err != nil {
		return nil, err
	}
	if s.engine, err = semel.New(s.store, nil); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	return &Inspection{s}, nil
}

// Close closes the store.
func (i *Inspection) Close() error {
	return errors.Join(i.s.engine.Close(context.Background()), i.s.store.Close())
}

// Findings makes the checks of readiness, but for those only a process that serves has, and
// checks the evidence log.
func (i *Inspection) Findings(ctx context.Context) []Finding {
	i.s.readDurability(ctx)
	all := slices.DeleteFunc(i.s.checks(ctx), func(f Finding) bool { return f.running })
	if i.s.current().cfg.Evidence.KeyFile != "" {
		all = append(all, i.evidence(ctx))
	}
	return all
}

// evidence verifies the newest checkpoint by the keys of the log, and holds it against the one
// that this node has signed last.
func (i *Inspection) evidence(ctx context.Context) Finding {
	c := &i.s.current().cfg.Evidence
	f := Finding{Name: "evidence"}
	wrong := func(err error) Finding { f.Err = err; return f }
	keys, _, err := evidenceKeys(c)
	if err != nil {
		return wrong(err)
	}
	x := i.s.store.Extras()
	if x.Evidence == nil {
		return wrong(cmp.Or(x.NoEvidence, errors.New("this store keeps no evidence")))
	}
	file := cmp.Or(c.SignedFile, c.KeyFile+".signed")
	signedLast, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrong(err)
	}
	reader, err := evidence.NewReader(ctx, i.s.store)
	switch {
	case errors.Is(err, evidence.ErrEmpty) && len(signedLast) == 0:
		f.Detail = "nothing is signed yet"
		return f
	case errors.Is(err, evidence.ErrEmpty):
		return wrong(fmt.Errorf("the log has no checkpoint, although %s has one that was signed: the store was put back or exchanged", file))
	case err != nil:
		return wrong(err)
	}
	signed, at := reader.Checkpoint()
	if _, err := keys.Trust().Open([]byte(signed)); err != nil {
		return wrong(fmt.Errorf("the newest checkpoint isn't signed by the keys in %s: %w", c.KeyFile, err))
	}
	if len(signedLast) > 0 {
		if err := reader.Contains(ctx, string(signedLast)); err != nil {
			return wrong(fmt.Errorf("the log doesn't contain what %s has, which was signed last: %w", file, err))
		}
	}
	f.Detail = fmt.Sprintf("the newest checkpoint, of %d entries, is signed by %s", at.Size, at.Origin)
	return f
}

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
