// Package metrics makes metrics for Prometheus and OpenTelemetry from what the engine and its
// doors tell by [semel.Events]. Neither of them knows of metrics. One table describes all.
package metrics

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door"
)

// Set sets a gauge of the table.
type Set func(name string, value float64, labels ...string)

// Metrics counts what the engine of one node tells. Its methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	counters map[string]*prometheus.CounterVec
	times    map[string]*prometheus.HistogramVec
	gauges   map[string]*prometheus.Desc
	observe  func(Set)

	simultaneous, refused, troubles, leases, crowded *prometheus.CounterVec

	decided sync.Map // of a series: its prometheus.Counter
	ended   sync.Map
	added   sync.Map // of a door: its prometheus.Observer

	mu    sync.Mutex
	crowd map[semel.ID]int // simultaneous deliveries in minute
	since int64
	purge time.Time
	pause map[string]bool
}

// crowdFrom is how many simultaneous deliveries of a key in a minute make a crowd.
const crowdFrom = 11

// maxCrowds bounds the keys that are watched for a crowd at one time.
const maxCrowds = 10_000

// New makes the metrics of a node. observe sets the gauges of the table that nobody counts;
// it is called for each scrape, and may leave out those that aren't known.
func New(observe func(Set)) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{}, times: map[string]*prometheus.HistogramVec{},
		gauges: map[string]*prometheus.Desc{}, observe: observe, crowd: map[semel.ID]int{}, pause: map[string]bool{},
	}
	for _, t := range Table {
		switch t.Kind {
		case Counter:
			m.counters[t.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: t.Name, Help: t.Help}, t.Labels)
			m.registry.MustRegister(m.counters[t.Name])
		case Gauge:
			m.gauges[t.Name] = prometheus.NewDesc(t.Name, t.Help, t.Labels, nil)
		case Histogram:
			m.times[t.Name] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: t.Name, Help: t.Help,
				Buckets:                     []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 60},
				NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
			}, t.Labels)
			m.registry.MustRegister(m.times[t.Name])
		}
	}
	m.simultaneous, m.crowded = m.counters["semel_simultaneous_deliveries_total"], m.counters["semel_crowded_minutes_total"]
	m.refused, m.troubles, m.leases = m.counters["semel_refused_requests_total"], m.counters["semel_troubles_total"], m.counters["semel_leases_lost_total"]
	m.registry.MustRegister(gauges{m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Registry has all metrics, those of the Go runtime and the process included.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

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
	purge := g.purge
	for destination, open := range g.pause {
		set("semel_dispatch_paused", number(open), destination)
	}
	g.mu.Unlock()
	set("semel_last_purge_timestamp_seconds", Timestamp(purge))
	g.observe(set)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Timestamp is a time as the value of a gauge; zero for the zero time.
func Timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// series names a counter that is looked up for each delivery.
type series [4]string

// cached is the counter of a series. Looking it up here takes a third of the time that the
// vector needs, which joins and hashes the labels.
func cached[T any](cache *sync.Map, s series, find func() T) T {
	if c, ok := cache.Load(s); ok {
		return c.(T)
	}
	c := find()
	cache.Store(s, c)
	return c
}

// Events are for the engine's options, together with others.
func (m *Metrics) Events() *semel.Events {
	decisions, attempts := m.counters["semel_decisions_total"], m.counters["semel_attempts_total"]
	added := func(from string, d time.Duration) {
		cached(&m.added, series{from}, func() prometheus.Observer {
			return m.times["semel_added_seconds"].WithLabelValues(from)
		}).Observe(d.Seconds())
	}
	return &semel.Events{
		Decided: func(e semel.Event) {
			from, operation, decision := e.Door, e.ID.Operation, string(e.Decision)
			if door.Internal(operation) {
				return
			}
			cached(&m.decided, series{from, operation, decision}, func() prometheus.Counter {
				// A counter that begins with its first event hasn't increased for Prometheus.
				m.simultaneous.WithLabelValues(from, operation)
				m.crowded.WithLabelValues(operation)
				m.leases.WithLabelValues(operation)
				return decisions.WithLabelValues(from, operation, decision)
			}).Inc()
			if e.Decision != semel.Execute {
				added(from, e.Added)
			}
			if e.Decision == semel.InFlight || e.Waited > 0 {
				m.simultaneous.WithLabelValues(from, operation).Inc()
				m.crowds(e.ID, e.At)
			}
		},
		Ended: func(e semel.Event) {
			from, operation, disposition := e.Door, e.ID.Operation, e.Disposition.String()
			if door.Internal(operation) {
				return
			}
			if e.Held {
				disposition = "held"
			}
			cached(&m.ended, series{from, operation, disposition, e.By}, func() prometheus.Counter {
				return attempts.WithLabelValues(from, operation, disposition, e.By)
			}).Inc()
			if e.Added > 0 {
				added(from, e.Added)
			}
		},
		Answered: func(e semel.Event) {
			if e.Code != "" {
				m.refused.WithLabelValues(e.Door, string(e.Code)).Inc()
			}
		},
		Troubled:  func(e semel.Event) { m.troubles.WithLabelValues(e.Door).Inc() },
		LeaseLost: func(e semel.Event) { m.leases.WithLabelValues(e.ID.Operation).Inc() },
		Purged: func(e semel.Event) {
			m.counters["semel_purged_records_total"].WithLabelValues().Add(float64(max(e.Count, 1)))
			m.mu.Lock()
			defer m.mu.Unlock()
			m.purge = time.Now()
		},
	}
}

// crowds counts a key's simultaneous deliveries in this minute.
func (m *Metrics) crowds(id semel.ID, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if minute := at.Unix() / 60; minute != m.since {
		m.since = minute
		clear(m.crowd)
	}
	if _, ok := m.crowd[id]; !ok && len(m.crowd) >= maxCrowds {
		return
	}
	if m.crowd[id]++; m.crowd[id] == crowdFrom {
		m.crowded.WithLabelValues(id.Operation).Inc()
	}
}

// Dispatched are for a dispatcher's options; more are called as well.
func (m *Metrics) Dispatched(more *dispatch.Events) *dispatch.Events {
	all := *more
	lag := m.times["semel_dispatch_lag_seconds"]
	tried := func(destination, outcome string) {
		for _, each := range []string{"delivered", "failed", "parked"} {
			m.counters["semel_dispatch_tries_total"].WithLabelValues(destination, each).Add(number(each == outcome))
		}
	}
	all.Delivered = func(e dispatch.DeliveryEvent) {
		tried(e.Destination, "delivered")
		lag.WithLabelValues(e.Destination).Observe(e.Waited.Seconds())
		more.Delivered(e)
	}
	all.Failed = func(e dispatch.DeliveryEvent) {
		tried(e.Destination, "failed")
		more.Failed(e)
	}
	all.Parked = func(e dispatch.DeliveryEvent) {
		tried(e.Destination, "parked")
		more.Parked(e)
	}
	all.Breaker = func(destination string, open bool) {
		m.mu.Lock()
		m.pause[destination] = open
		m.mu.Unlock()
		more.Breaker(destination, open)
	}
	return &all
}

// Lookup finds a metric of the table.
func Lookup(name string) (Metric, bool) {
	i := slices.IndexFunc(Table, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return Table[i], true
}
