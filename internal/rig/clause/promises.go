package clause

// The exceptions of promises that end where acknowledged records are lost.
var (
	untilLost = map[string]string{
		"ON-MEMORY": "in one process, until it ends", "ON-EMBEDDED": "in one process at a time", "ON-POSTGRES-ASYNC": "until a failover",
		"ON-REDIS-EVERYSEC": "until a crash", "ON-REDIS-REPLICAS": "until a failover",
	}
	noMemory = map[string]string{
		"ON-MEMORY": No, "ON-POSTGRES-ASYNC": "until a failover", "ON-REDIS-EVERYSEC": "but for the last two seconds", "ON-REDIS-REPLICAS": "until a failover",
	}
	postgresOnly = map[string]string{
		"ON-MEMORY": No, "ON-EMBEDDED": No, "ON-POSTGRES-ASYNC": "until a failover", "ON-REDIS": No, "ON-REDIS-EVERYSEC": No, "ON-REDIS-REPLICAS": No,
	}
	noRedis = map[string]string{
		"ON-MEMORY": "until the process ends", "ON-POSTGRES-ASYNC": "until a failover", "ON-REDIS": No, "ON-REDIS-EVERYSEC": No, "ON-REDIS-REPLICAS": No,
	}
)

// Made is what Semel promises.
var Made = Promises{
	Never: []string{
		"**Exactly-once delivery.** A network that loses answers makes clients repeat requests. Semel makes the *effect* happen once, by recognising the repetitions.",
		"**Telling a crash before an effect from a crash after it.** Somebody has to ask the system where the effect happens. Semel holds such a call, unless you choose `on_abandoned: retry`.",
		"**Mutual exclusion of paused processes.** A lease ends by the clock, and a process that was paused meanwhile doesn't notice. It can't change the record any more, but it can still reach other systems. Pass them the fencing token, so that they can refuse it.",
		"**One effect by fencing alone.** A fencing token keeps an old holder from overwriting what a later one wrote. It doesn't keep two charges from adding up; only the effect's key, checked by the provider, does.",
		"**Anything after the window.** Then a duplicate is a new call. Use an operation with `RefuseLate`, and keys that carry a time, to refuse it instead.",
		"**Anything for a new key.** A client that makes up a new key for a retry makes a new call.",
		"**Acknowledged records after a failover to a machine that was behind.** This concerns asynchronous standbys of PostgreSQL and replicas of Redis. Their calls run again.",
		"**The time between a backup and its restore.** What was recorded meanwhile is gone; see [after a restore](stores.md#after-a-restore-from-a-backup).",
		"**A log that nobody can forge.** Whoever has both the store and the signing key can rewrite whatever nobody else has kept a checkpoint of; see [evidence](evidence.md).",
		"**Hardware that lies.** A disk that says it has synced and hasn't, or that returns wrong bytes with the right checksum, is outside of all that follows.",
	},
	Deployments: []Deployment{
		{"ON-MEMORY", "memory", "`memory:`", "store/memstore", "process", "nothing", "the process"},
		{"ON-EMBEDDED", "embedded", "`pebble:DIR`", "store/pebblestore", "disk", "crashes of the process and of the machine", "the disk; an old copy put back"},
		{"ON-POSTGRES", "PostgreSQL", "`postgres://…`", "store/pgstore", "disk", "crashes of the server", "the disk"},
		{"ON-POSTGRES-SYNC", "PostgreSQL, synchronous standby", "`postgres://…`", "store/pgstore", "replicated", "the loss of one machine, if only a synchronous standby is promoted", "both machines"},
		{"ON-POSTGRES-ASYNC", "PostgreSQL, asynchronous standby", "`postgres://…`", "store/pgstore", "disk", "crashes of the primary", "a failover, as far as the standby was behind"},
		{"ON-REDIS", "Redis, `appendfsync always`", "`redis://…`", "store/redisstore", "disk", "crashes of the server", "the disk"},
		{"ON-REDIS-EVERYSEC", "Redis, `appendfsync everysec`", "`redis://…`", "store/redisstore", "relaxed", "most crashes of the server", "a crash of the machine, or of the server while its disk is slow: the last two seconds"},
		{"ON-REDIS-REPLICAS", "Redis Cluster", "`redis-cluster://…`", "store/redisstore", "cache-grade", "crashes of servers, as long as no replica takes over", "a failover: whatever wasn't replicated yet"},
	},
	Modes: []Mode{
		{"In your transaction: `pgstore.Do`, `WithTx`, `Route.Tx`", "rows, claim and outcome commit together, so there is nothing to settle after a crash", "anything outside of that database, such as mail", "effects in the same PostgreSQL database", []string{"G-TX"}},
		{"A handler, or claim and completion by the API", "one holder at a time, and one recorded outcome", "that a holder that died had no effect: its call is held, or runs again if you choose `on_abandoned: retry`", "a handler that stops when its context ends", []string{"G-HOLDER", "G-OUTCOME", "G-PROGRESS"}},
		{"The same, and the provider knows the effect's key", "an effect at most once within the provider's window as well", "anything beyond the provider's window", "a window that isn't longer than the provider's", []string{"G-HOLDER", "G-KEY"}},
		{"The effect ledger: `semel.Effect`", "no effect is repeated that may have happened", "that a held call ends by itself", "a reconciler, or somebody who settles", []string{"G-LEDGER", "G-UNKNOWN"}},
		{"The proxy and routes", "a request is sent to the upstream once for each attempt, and never silently again", "that the upstream does it once; whether it did, if it doesn't answer", "a timeout that ends before the lease", []string{"G-SENT", "G-UNKNOWN"}},
		{"Messages of completed calls", "each message is delivered at least once, and never for a call that didn't complete", "that it arrives once: a crash after the delivery repeats it", "a receiver that recognises the message's id", []string{"G-OUTBOX"}},
	},
	Guarantees: []Guarantee{
		{
			ID: "G-HOLDER", Title: "One holder at a time", PerStore: true,
			Text:    "Of all deliveries of a call, at most one has the right to execute it at any time, and each later holder has a higher fencing token.",
			Clauses: []string{"CORE-INV.1", "CORE-CONC.2", "IDS-IX.3", "IDS-XIII.2"},
			Except:  untilLost,
			If:      "Your work stops when its lease is lost: the handler's context ends, and the API answers `lease_lost`.",
			Not:     "A holder that was paused for longer than its lease can still reach other systems. They have to check the fencing token or the effect's key.",
		},
		{
			ID: "G-STALE", Title: "A holder that was replaced changes nothing", PerStore: true,
			Text:    "Whoever has lost the right to execute can neither renew, nor complete, nor fail the call any more.",
			Clauses: []string{"CORE-STATE.2"},
			Except:  untilLost,
			If:      "–",
			Not:     "What such a holder does outside of Semel.",
		},
		{
			ID: "G-OUTCOME", Title: "One outcome, the same for everybody", PerStore: true,
			Text:    "A call has one outcome within its window; it never changes, and every duplicate gets it.",
			Clauses: []string{"CORE-INV.2", "CORE-INV.3", "IDS-IX.1"},
			Except:  untilLost,
			If:      "The retry has the same key and the same payload, and comes from the same caller. An outcome that lets a call run again (aborted; failed, with `on_failure: retry`) isn't final.",
			Not:     "A result over `max_result`, an event stream over `max_stream`, or another answer that was streamed: it isn't kept, and a duplicate gets 410 and no second execution.",
		},
		{
			ID: "G-DURABLE", Title: "Durable before anybody hears of it", PerStore: true,
			Text:   "A claim is durable before the handler starts, and an outcome before anybody is answered, so no crash takes back what somebody was told.",
			Except: noMemory,
			If:     "The store's settings stay as they were when you looked at its level.",
			Not:    "What the deployment is lost with, by the table above.",
		},
		{
			ID: "G-TX", Title: "Effects in the same transaction happen once", PerStore: true,
			Text:    "If the effect is rows in the database that also has the records, the rows are there exactly if the outcome is.",
			Clauses: []string{"MAP-FLOW.5", "MAP-ORD.1"},
			Except:  postgresOnly,
			If:      "The work is done in the transaction that Semel gives you, or that you give to Semel.",
			Not:     "Anything outside of that database.",
		},
		{
			ID: "G-LEDGER", Title: "A recorded effect isn't repeated", PerStore: true,
			Text:    "The intent of an effect is durable before the provider is called; a recorded result is never asked for again, and an effect without one holds the call.",
			Clauses: []string{"IDS-XI.S3"},
			Except:  untilLost,
			If:      "The call to the provider is wrapped in `semel.Effect`.",
			Not:     "Calls to providers that aren't wrapped: Semel can't see them.",
		},
		{
			ID: "G-PROGRESS", Title: "No key is stuck", PerStore: true,
			Text:   "When a holder dies, its call is open to a decision as soon as its lease is over: it runs again, or is held for a reason, by the policy under which it was claimed.",
			Except: map[string]string{"ON-MEMORY": "in one process", "ON-EMBEDDED": "once the process is back"},
			If:     "The store answers. To have abandoned calls settled without a delivery, run sweeps (`engine.Run`, `semel serve`).",
			Not:    "A held call ends only when a reconciler, an operator or the provider says what happened.",
		},
		{
			ID: "G-APART", Title: "Tenants are apart", PerStore: true,
			Text:    "Two identities that differ in tenant, principal, operation or key never share a record.",
			Clauses: []string{"CORE-ID.1", "IDS-XV.1"},
			If:      "Tenant and principal come from a verified identity.",
			Not:     "Operations that share answers within a tenant on purpose (`share: tenant`).",
		},
		{
			ID: "G-WINDOW", Title: "Outcomes are kept for their whole window", PerStore: true,
			Text:    "An outcome is kept for the window that it was promised, and only afterwards is the call a new one.",
			Clauses: []string{"IDS-VIII.4", "MAP-EXP.1"},
			Except:  untilLost,
			If:      "–",
			Not:     "Duplicates after the window. Records of financial operations are archived first, and stay if there is no archive.",
		},
		{
			ID: "G-CLOCK", Title: "A clock that leaps makes nothing run twice", PerStore: true,
			Text:   "When the store's clock is set ahead or back, no record expires and no lease ends early, until the leap has lasted for as long as it is long, at most an hour.",
			Except: map[string]string{"ON-MEMORY": No},
			If:     "Nobody runs `semel store accept-clock` on a clock that is wrong.",
			Not:    "A clock that stays wrong for longer than an hour while nobody looks at `/readyz`.",
		},
		{
			ID: "G-EVIDENCE", Title: "Evidence and record are one write", PerStore: true,
			Text:   "The entries of the evidence log that tell of a change are written in the same atomic step as the change.",
			Except: noRedis,
			If:     "The operation asks for evidence. One that demands it doesn't start on a store without.",
			Not:    "Whoever owns both the store and the signing key, unless somebody else keeps the checkpoints.",
		},
		{
			ID: "G-TAMPER", Title: "Tampering is noticed",
			Text:    "An entry of the evidence log that was changed, dropped, inserted or moved is named by `semel evidence verify`, and a record that was changed behind the engine by `semel store audit`.",
			Clauses: []string{"IDS-XV.2", "IDS-XV.5"},
			Except:  noRedis,
			If:      "You keep the public key, and a checkpoint, where the operator can't reach them.",
			Not:     "Records of operations without evidence.",
		},
		{
			ID: "G-PAYLOAD", Title: "Another payload neither runs nor gets the answer",
			Text:    "A delivery with the key of another payload is a conflict: it isn't executed, and is shown nothing.",
			Clauses: []string{"CORE-ID.2", "IDS-VIII.5", "IDS-XIII.5"},
			Except:  untilLost,
			If:      "The fingerprint covers what matters; the doors compute it from the whole request.",
			Not:     "The same payload under another key.",
		},
		{
			ID: "G-RIGHTS", Title: "An answer is shown to those who may see it",
			Text:    "A replay shows a caller no more than its rights at that moment allow.",
			Clauses: []string{"IDS-XV.4"},
			If:      "Callers are verified. Callers who aren't are told apart by their credential.",
			Not:     "Whoever has the caller's credential.",
		},
		{
			ID: "G-CLOSED", Title: "Nothing runs while the store is away",
			Text: "When the store can't be reached, a delivery is refused with 503 and `Retry-After`, and nothing is executed for it.",
			If:   "The route doesn't choose to pass requests on unguarded.",
			Not:  "Work that was already running: it goes on, and its outcome is recorded when the store is back, or is unknown.",
		},
		{
			ID: "G-UNKNOWN", Title: "What may have happened isn't repeated",
			Text:    "An answer that proves nothing (a timeout, a broken answer, 408, 502, 504) makes the call held, never free to run again.",
			Clauses: []string{"IDS-V.2", "FOR-LIFE.1", "FOR-FAIL.1", "MAP-FLOW.6"},
			Except:  untilLost,
			If:      "The operation doesn't choose `on_abandoned: retry`.",
			Not:     "What a program says of itself: after its own 500, `on_failure` decides. See [what a 5xx means](what-a-5xx-means.md).",
		},
		{
			ID: "G-SENT", Title: "A request is sent once",
			Text: "For one attempt the proxy sends the request to the upstream once, and never by itself again, whatever becomes of the connection.",
			If:   "No gateway behind Semel repeats requests.",
			Not:  "What the upstream does with it.",
		},
		{
			ID: "G-KEY", Title: "Providers get the same key for each attempt",
			Text:    "All attempts of a call pass the same derived key for an effect, and a shield sends no request without it.",
			Clauses: []string{"IDS-XI.S1"},
			If:      "The provider honours the key.",
			Not:     "Attempts beyond the time for which the provider remembers it.",
		},
		{
			ID: "G-OUTBOX", Title: "Messages are delivered at least once",
			Text:    "A message exists exactly if its call completed, and is delivered until the receiver accepts it or somebody discards it.",
			Clauses: []string{"IDS-XI.S2"},
			Except:  untilLost,
			If:      "A dispatcher runs.",
			Not:     "Delivering it only once: the receiver recognises it by its id.",
		},
		{
			ID: "G-LEVEL", Title: "Semel says what your store is worth", PerStore: true,
			Text: "The level that `semel store status` and `/readyz?verbose` report is read from the store's live settings, once a minute.",
			If:   "Semel may read the settings. Those that it may not read count as the worst.",
			Not:  "Settings of the disk, the file system or the machine.",
		},
	},
}
