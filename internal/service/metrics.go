package service

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// gauges are what metrics need that nobody counts.
type gauges struct {
	census  *metrics.Census
	audited atomic.Pointer[audited]

	mu sync.Mutex
	// signed is the size of the newest signed checkpoint, and since is when entries without one
	// first showed up.
	signed uint64
	since  time.Time
}

// serveMetrics answers a scrape. Metrics name operations and count the calls of all tenants,
// so they need a role that isn't that of one tenant.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	c, general, err := s.identified(r)
	if s.allowed(w, err, c.Role >= api.Viewer && general, "Only a viewer of all tenants may read the metrics: one "+ofAllTenants) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		s.metricsHandler.ServeHTTP(w, r)
	}
}

func (s *Server) gauge(set metrics.Set) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	kind, _, _ := strings.Cut(s.storeName, ":")
	set("semel_build_info", 1, s.version, runtime.Version(), kind)
	bad := slices.ContainsFunc(s.checks(ctx), func(c Finding) bool { return c.Err != nil })
	set("semel_ready", metrics.Number(!bad))
	set("semel_config_last_reload_successful", metrics.Number(!s.reloadFailed.Load()))
	if st, _, ok := s.clockState(ctx); ok {
		set("semel_clock_held_seconds", st.Held.Seconds())
		set("semel_clock_back_seconds", st.Back.Seconds())
	}
	if embedded, ok := store.As[*pebblestore.Store](s.store); ok {
		if room, err := embedded.Room(); err == nil {
			set("semel_disk_free_bytes", float64(room.Free))
			set("semel_disk_size_bytes", float64(room.Total))
		}
	}
	s.observer.Waiting(func(kind string, waiting int, lost uint64) {
		set("semel_behind_waiting", float64(waiting), kind)
		set("semel_behind_lost", float64(lost), kind)
	})
	if e := s.lastSweep.Load(); e != nil {
		set("semel_swept_records", float64(e.Swept.Left), "other_operation")
		set("semel_swept_records", float64(e.Swept.Unreadable), "unreadable")
		set("semel_swept_records", float64(e.Swept.Unarchived), "not_archived")
		set("semel_swept_records", float64(e.Swept.Waiting), "waiting")
	}
	set("semel_last_sweep_timestamp_seconds", float64(s.sweptAt.Load())/1000)
	if now, err := s.store.Now(ctx); err == nil {
		s.gauges.census.Set(set, now)
	}
	s.gaugeEvidence(ctx, set)
}

// gaugeEvidence tells how far signing is behind writing.
func (s *Server) gaugeEvidence(ctx context.Context, set metrics.Set) {
	if s.evidence == nil {
		return
	}
	set("semel_evidence_fault", metrics.Number(s.evidence.Fault() != nil))
	if a := s.gauges.audited.Load(); a != nil && a.err == nil {
		set("semel_evidence_audit_faults", float64(a.faults))
		set("semel_evidence_audit_timestamp_seconds", float64(a.at.Unix()))
	}
	reader, err := s.evidence.Reader(ctx)
	if err != nil {
		return // nothing is signed yet, or the store doesn't answer
	}
	_, signed := reader.Checkpoint()
	unsigned, err := entriesFrom(ctx, s.store.Extras().Evidence, signed.Size)
	if err != nil {
		return
	}
	g := &s.gauges
	g.mu.Lock()
	defer g.mu.Unlock()
	if unsigned == 0 || signed.Size != g.signed || g.since.IsZero() {
		g.signed, g.since = signed.Size, time.Now()
	}
	set("semel_evidence_lag_entries", float64(unsigned))
	set("semel_evidence_lag_seconds", time.Since(g.since).Seconds())
}

// entriesFrom is how many entries a log has from a number on. It reads few of them: whether
// there is one tells on which side of the end it is.
func entriesFrom(ctx context.Context, log store.EvidenceLog, from uint64) (uint64, error) {
	var failed error
	ends := func(n uint64) bool { // there are at most so many
		entries, err := log.ReadEvidence(ctx, from+n, 1)
		failed = cmp.Or(failed, err)
		return err != nil || len(entries) == 0
	}
	most := uint64(0)
	for !ends(most) {
		most = 2*most + 1
	}
	return uint64(sort.Search(int(most), func(n int) bool { return ends(uint64(n)) })), failed
}
