package server

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/server/api"
	"github.com/semelhq/semel/server/metrics"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// gauges are what metrics need that nobody counts.
type gauges struct {
	census  *metrics.Census
	version string

	mu sync.Mutex
	// signed is the size of the newest signed checkpoint that was seen, and since is when
	// entries without one were seen first.
	signed uint64
	since  time.Time
}

// serveMetrics answers a scrape. Metrics name operations, so they need a role.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if s.only(api.Viewer, w, r, "read the metrics") {
		s.metricsHandler.ServeHTTP(w, r)
	}
}

// gauge sets the gauges of metrics, for one scrape.
func (s *Server) gauge(set metrics.Set) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	kind, _, _ := strings.Cut(s.storeName, ":")
	set("semel_build_info", 1, s.gauges.version, runtime.Version(), kind)
	ready := 1.0
	for _, c := range s.checks(ctx) {
		if c.err != nil {
			ready = 0
		}
	}
	set("semel_ready", ready)
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
	if e := s.lastSweep.Load(); e != nil {
		set("semel_swept_records", float64(e.Swept.Left), "other_operation")
		set("semel_swept_records", float64(e.Swept.Unreadable), "unreadable")
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
	fault := 0.0
	if s.evidence.Fault() != nil {
		fault = 1
	}
	set("semel_evidence_fault", fault)
	reader, err := s.evidence.Reader(ctx)
	if err != nil {
		return // nothing is signed yet, or the store doesn't answer
	}
	_, signed := reader.Checkpoint()
	var entries []store.Entry
	if entries, err = s.store.Extras().Evidence.ReadEvidence(ctx, signed.Size, 1); err != nil {
		return
	}
	g := &s.gauges
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(entries) == 0 || signed.Size != g.signed || g.since.IsZero() {
		g.signed, g.since = signed.Size, time.Now()
	}
	set("semel_evidence_lag_seconds", time.Since(g.since).Seconds())
}
