package metrics

// Kind says how a metric behaves.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"   // only rises, from zero when the process starts
	Gauge     Kind = "gauge"     // is what it is at the moment
	Histogram Kind = "histogram" // in seconds
	Sizes     Kind = "sizes"     // a histogram of counts, in classic buckets of powers of two
)

// Metric describes one metric. From the table of all of them come the metrics themselves, the
// page docs/metrics.md, and the test of the alerts and the dashboard.
type Metric struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []string
}

// Labels says which values each label may have: from a closed set, or names in the
// configuration. No label has a key, a tenant or a principal.
var Labels = map[string]string{
	"door":        "the door: `http`, `proxy`, `api`, `forrst`, `ids`, `webhook`, `activitypub`, `whatsapp`, `a2a`, `mcp`, `commerce`, or the name that a program gives to its own",
	"operation":   "the name of a configured operation",
	"decision":    "`execute`, `replay`, `in_flight`, `conflict`, `held`, `too_late`, `throttled`, `other_caller`, `other_door`, `superseded`, `sequence_gap`",
	"code":        "the code of the refusal; `semel explain` says what each means",
	"disposition": "`completed`, `rejected`, `failed`, `aborted`, `abandoned`, `held`",
	"by":          "who ended it: `holder`, `reaper`, `reconciler`, `operator`",
	"state":       "`in_flight`, `held`, `held_unverified`: held for callers whom nobody verified",
	"call":        "`apply`, `get` and `now` are those of deliveries, and `due`, `search` and `purge` those of sweeps and consoles",
	"outcome":     "`ok`, `stale` (somebody else has written the record), `absent` (there is none), `error` (so the result is unknown); of a try to deliver: `delivered`, `failed`, `parked`",
	"destination": "the name of a configured destination",
	"queue":       "what is gathered: `writes`, `reads`, `evidence`",
	"why":         "`other_operation` (no operation of this node), `not_archived` (the archive didn't take them), `unreadable`, `waiting` (for a reconciler or a compensation to be free)",
	"kind":        "`counts` of what deliveries got, `conflicts`, `payloads` that were refused",
	"version":     "the program's version",
	"goversion":   "the version of Go that built it",
	"store":       "the kind of store",
}

// Table has all metrics.
var Table = []Metric{
	{"semel_decisions_total", Counter, "Deliveries by what they got. A `replay` is a stopped duplicate, which got the outcome of another delivery, at once or after waiting for it. `in_flight` is a poll, which was told to come back. The others were refused.", []string{"door", "operation", "decision"}},
	{"semel_simultaneous_deliveries_total", Counter, "Deliveries that met a running attempt: they got in_flight, or waited for its outcome.", []string{"door", "operation"}},
	{"semel_crowded_keys_total", Counter, "Keys that had as many deliveries at once within a minute as metrics.crowded says, eleven by default, each once for every such minute. GET /v1/figures lists the records.", []string{"operation"}},
	{"semel_refused_requests_total", Counter, "Requests that a door has refused, with an engine's decision or without one.", []string{"door", "code"}},
	{"semel_failed_open_requests_total", Counter, "Requests that ran without a guard because the store didn't answer and their route has store_down: fail_open. They may have happened twice.", []string{"door", "operation"}},
	{"semel_failing_open", Gauge, "1 if there was such a request in the last five minutes.", nil},
	{"semel_troubles_total", Counter, "Errors that no caller got, such as an outcome that isn't recorded yet.", []string{"door"}},
	{"semel_attempts_total", Counter, "Attempts that ended, or were found abandoned or held.", []string{"door", "operation", "disposition", "by"}},
	{"semel_leases_lost_total", Counter, "Attempts that were told to stop because their lease was lost.", []string{"operation"}},
	{"semel_added_seconds", Histogram, "What Semel added to the time of a delivery, without the work itself and without waiting for another's outcome.", []string{"door"}},
	{"semel_attempts", Gauge, "Attempts in the whole store, as it was looked through last; the same on each node.", []string{"state"}},
	{"semel_oldest_attempt_seconds", Gauge, "Age of the oldest of these attempts; zero if there are none.", []string{"state"}},
	{"semel_effects_open", Gauge, "Effects of these attempts that were started and have no result.", nil},
	{"semel_store_calls_total", Counter, "Calls to the store, writes that are sent again included.", []string{"call", "outcome"}},
	{"semel_store_call_seconds", Histogram, "How long calls to the store took; of reads from a store in this process, every eighth.", []string{"call"}},
	{"semel_store_batch_size", Sizes, "How many calls the store did in one batch (group commit).", []string{"queue"}},
	{"semel_store_silent_seconds", Gauge, "For how long calls have waited for the store without one of them being answered; 0 where none waits. Above 5 for `writes`, the node isn't ready.", []string{"queue"}},
	{"semel_store_queue_ratio", Gauge, "How full the room for calls that wait for the store is, from 0 to 1. At 1, calls are refused.", []string{"queue"}},
	{"semel_behind_waiting", Gauge, "Calls about which something waits to be written behind their deliveries; of conflicts, lists of calls.", []string{"kind"}},
	{"semel_behind_lost", Gauge, "How many of these were lost since the node was started, because too many waited or the store failed: counts are too low by that.", []string{"kind"}},
	{"semel_swept_records", Gauge, "Due records that the last sweep couldn't deal with.", []string{"why"}},
	{"semel_last_sweep_timestamp_seconds", Gauge, "When the last sweep ended without trouble; zero before the first.", nil},
	{"semel_last_purge_timestamp_seconds", Gauge, "When this node purged expired records last; zero if it hasn't.", nil},
	{"semel_purged_records_total", Counter, "Records that were purged.", nil},
	{"semel_dispatch_tries_total", Counter, "Tries to deliver messages.", []string{"destination", "outcome"}},
	{"semel_parked_deliveries_total", Counter, "Deliveries, such as an event of a webhook, that wait for somebody to replay or discard them: conflicts, and those that are held.", []string{"operation"}},
	{"semel_dispatch_lag_seconds", Histogram, "From the completion of a call until its message was delivered.", []string{"destination"}},
	{"semel_dispatch_paused", Gauge, "1 while the circuit breaker of a destination is open.", []string{"destination"}},
	{"semel_evidence_lag_entries", Gauge, "Entries of the evidence log that no signed checkpoint has yet.", nil},
	{"semel_evidence_lag_seconds", Gauge, "For how long the evidence log has had entries and no new signed checkpoint.", nil},
	{"semel_evidence_fault", Gauge, "1 if this node signs nothing because the log isn't what it was, or a keeper has something against it.", nil},
	{"semel_evidence_audit_faults", Gauge, "Records that weren't what the evidence log says, when this node compared them last; see `evidence.audit_every`.", nil},
	{"semel_evidence_audit_timestamp_seconds", Gauge, "When that was.", nil},
	{"semel_clock_held_seconds", Gauge, "How far the clock of the store went ahead without being followed yet.", nil},
	{"semel_clock_back_seconds", Gauge, "How far the clock of the store was put back.", nil},
	{"semel_disk_free_bytes", Gauge, "Free space on the disk of an embedded store.", nil},
	{"semel_disk_size_bytes", Gauge, "Size of that disk.", nil},
	{"semel_config_last_reload_successful", Gauge, "0 if the last reload of the configuration failed: the one before is still in force.", nil},
	{"semel_ready", Gauge, "1 if this node should get traffic.", nil},
	{"semel_build_info", Gauge, "Always 1.", []string{"version", "goversion", "store"}},
}
