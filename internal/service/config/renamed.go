package config

// renamed has what to write in place of settings that an earlier version had, by their paths,
// or by their names where they are in a list.
var renamed = map[string]string{
	"not_executed": "write answers: {not_executed: [...]}",
	"dashboard":    "remove it: its only setting was lab, and that screen is gone; semel demo shows that one of many copies runs",
}
