// Package metrics makes metrics for Prometheus and OpenTelemetry from what the engine and its
// doors tell by [semel.Events]. Neither of them knows of metrics. One table describes all.
package metrics

import (
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

// Set sets a gauge of the table.
type Set func(name string, value float64, labels ...string)

// Metrics counts what the engine of one node tells. Its methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	counters map[string]*prometheus.CounterVec
	times    map[string]*prometheus.HistogramVec
	gauges   map[string]*prometheus.Desc // and of sizes
	observe  func(Set)

	queues store.QueueReporter // nil if there is none

	decided, ended cache[prometheus.Counter]
	added          cache[prometheus.Observer] // by door

	mu    sync.Mutex
	purge float64   // when this node purged last, in Unix seconds
	open  time.Time // when a request failed open last
	pause map[string]bool
}

// New makes the metrics of a node. observe sets the gauges of the table that nobody counts; it
// is called for each scrape, and may leave out gauges without a value.
func New(observe func(Set)) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{}, times: map[string]*prometheus.HistogramVec{},
		gauges: map[string]*prometheus.Desc{}, observe: observe, pause: map[string]bool{},
	}
	for _, t := range Table {
		switch t.Kind {
		case Counter:
			m.counters[t.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: t.Name, Help: t.Help}, t.Labels)
			m.registry.MustRegister(m.counters[t.Name])
		case Gauge, Sizes:
			m.gauges[t.Name] = prometheus.NewDesc(t.Name, t.Help, t.Labels, nil)
		case Histogram:
			opts := prometheus.HistogramOpts{Name: t.Name, Help: t.Help, Buckets: []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 60}}
			if t.Name == "semel_added_seconds" { // to observe that takes three times as long
				opts.NativeHistogramBucketFactor, opts.NativeHistogramMaxBucketNumber, opts.NativeHistogramMinResetDuration = 1.1, 160, time.Hour
			}
			m.times[t.Name] = prometheus.NewHistogramVec(opts, t.Labels)
			m.registry.MustRegister(m.times[t.Name])
		}
	}
	m.decided.find = func(s series) prometheus.Counter {
		// A counter that begins with its first event hasn't increased for Prometheus.
		m.count("semel_simultaneous_deliveries_total", 0, s[0], s[1])
		m.count("semel_crowded_keys_total", 0, s[1])
		m.count("semel_leases_lost_total", 0, s[1])
		m.count("semel_failed_open_requests_total", 0, s[0], s[1])
		m.count("semel_parked_deliveries_total", 0, s[1])
		return m.counters["semel_decisions_total"].WithLabelValues(s[:3]...)
	}
	m.ended.find = func(s series) prometheus.Counter { return m.counters["semel_attempts_total"].WithLabelValues(s[:]...) }
	m.added.find = func(s series) prometheus.Observer { return m.times["semel_added_seconds"].WithLabelValues(s[0]) }
	m.registry.MustRegister(gauges{m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics in the formats of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// gauges are set anew for each scrape.
type gauges struct{ *Metrics }

func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.gauges {
		ch <- d
	}
}

func (g gauges) Collect(ch chan<- prometheus.Metric) {
	set := func(name string, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(g.gauges[name], prometheus.GaugeValue, value, labels...)
	}
	g.mu.Lock()
	purge, open := g.purge, g.open
	for destination, open := range g.pause {
		set("semel_dispatch_paused", Number(open), destination)
	}
	g.mu.Unlock()
	set("semel_last_purge_timestamp_seconds", purge)
	set("semel_failing_open", Number(!open.IsZero() && time.Since(open) < 5*time.Minute))
	if g.queues != nil {
		for _, q := range g.queues.Queues() {
			set("semel_store_queue_ratio", q.Full, q.Name)
			set("semel_store_silent_seconds", q.Silent.Seconds(), q.Name)
			ch <- sizes(g.gauges["semel_store_batch_size"], &q)
		}
	}
	g.observe(set)
}

func sizes(desc *prometheus.Desc, q *store.QueueState) prometheus.Metric {
	buckets, sum := map[float64]uint64{}, uint64(0)
	for i, n := range q.Batches {
		if sum += n; i < len(q.Batches)-1 {
			buckets[float64(uint64(1)<<i)] = sum
		}
	}
	return prometheus.MustNewConstHistogram(desc, sum, float64(q.Items), buckets, q.Name)
}

// Number is a truth as the value of a gauge.
func Number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// count adds to a counter that is rarely needed.
func (m *Metrics) count(name string, n float64, labels ...string) {
	m.counters[name].WithLabelValues(labels...).Add(n)
}

// series has the labels of a metric that is looked up for each delivery.
type series [4]string

// cache finds such metrics. Looking them up here takes a third of the time that the vector
// needs, which joins and hashes the labels.
type cache[T any] struct {
	known atomic.Pointer[map[series]T] // replaced as a whole
	find  func(series) T
}

func (c *cache[T]) of(s series) T {
	known := c.known.Load()
	if known != nil {
		if is, ok := (*known)[s]; ok {
			return is
		}
	}
	next := map[series]T{s: c.find(s)}
	if known != nil {
		maps.Copy(next, *known)
	}
	c.known.CompareAndSwap(known, &next) // otherwise it is added the next time
	return next[s]
}

// Events are for the engine's options, together with others.
func (m *Metrics) Events() *semel.Events {
	return &semel.Events{
		Decided: func(e semel.Decided) {
			if door.Internal(e.ID.Operation) {
				return
			}
			m.decided.of(series{e.Door, e.ID.Operation, string(e.Decision)}).Inc()
			if e.Decision != semel.Execute {
				m.added.of(series{e.Door}).Observe(e.Added.Seconds())
			}
			if e.Decision == semel.InFlight || e.Waited > 0 {
				m.count("semel_simultaneous_deliveries_total", 1, e.Door, e.ID.Operation)
			}
		},
		Ended: func(e semel.Ended) {
			disposition := e.Disposition.String()
			if door.Internal(e.ID.Operation) {
				return
			}
			if e.Held {
				disposition = "held"
			}
			m.ended.of(series{e.Door, e.ID.Operation, disposition, e.By}).Inc()
			if e.Added > 0 {
				m.added.of(series{e.Door}).Observe(e.Added.Seconds())
			}
		},
		Answered: func(e semel.Delivered) {
			if e.Code != "" {
				m.count("semel_refused_requests_total", 1, e.Door, string(e.Code))
			}
			if e.Parked {
				m.count("semel_parked_deliveries_total", 1, e.ID.Operation)
			}
			if e.FailedOpen {
				m.count("semel_failed_open_requests_total", 1, e.Door, e.ID.Operation)
				m.mu.Lock()
				defer m.mu.Unlock()
				m.open = time.Now()
			}
		},
		Troubled:  func(e semel.Troubled) { m.count("semel_troubles_total", 1, e.Door) },
		LeaseLost: func(e semel.LeaseLost) { m.count("semel_leases_lost_total", 1, e.ID.Operation) },
		Purged: func(e semel.Purged) {
			m.count("semel_purged_records_total", float64(max(e.Count, 1)))
			m.mu.Lock()
			defer m.mu.Unlock()
			m.purge = float64(time.Now().UnixMilli()) / 1000
		},
	}
}

// Crowded counts a key that had too many deliveries at once. Figures tell.
func (m *Metrics) Crowded(operation string) { m.count("semel_crowded_keys_total", 1, operation) }

// Dispatched are for a dispatcher's options; more are called as well.
func (m *Metrics) Dispatched(more *dispatch.Events) *dispatch.Events {
	all := *more
	lag := m.times["semel_dispatch_lag_seconds"]
	tried := func(outcome string, next func(dispatch.DeliveryEvent)) func(dispatch.DeliveryEvent) {
		return func(e dispatch.DeliveryEvent) {
			for _, each := range []string{"delivered", "failed", "parked"} {
				m.count("semel_dispatch_tries_total", Number(each == outcome), e.Destination, each)
			}
			next(e)
		}
	}
	all.Failed, all.Parked = tried("failed", more.Failed), tried("parked", more.Parked)
	all.Delivered = tried("delivered", func(e dispatch.DeliveryEvent) {
		lag.WithLabelValues(e.Destination).Observe(e.Waited.Seconds())
		more.Delivered(e)
	})
	all.Breaker = func(destination string, open bool) {
		m.mu.Lock()
		m.pause[destination] = open
		m.mu.Unlock()
		more.Breaker(destination, open)
	}
	return &all
}
