package config

// renamed has what to write in place of settings that an earlier version had, by their paths,
// or by their names where they are in a list.
var renamed = map[string]string{
	"limits.requests":  "remove it: limits.connections bounds the requests at once, too",
	"limits.streams":   "remove it: a connection of HTTP/2 has up to 100 requests at once",
	"log.deliveries":   "remove it, or write level: warn in place of off and debug",
	"purge.per_second": "remove it: up to 1000 records are removed a second",
	"not_executed":     "write answers: {not_executed: [...]}",
	"dashboard":        "remove it: its only setting was lab, and that screen is gone; semel demo shows that one of many copies runs",
}
