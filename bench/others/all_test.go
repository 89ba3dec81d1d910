package others

import (
	"slices"
	"strings"
)

// other is one of those that are judged.
type other struct {
	name  string // of its column
	pkg   string // whose version is pinned; empty is Semel, of this tree
	setup string // how it is set up, and where its documentation says so
	serve func() // in Go,
	node  string // or a program in npm
	redis bool   // it needs a Redis
	// declined are requirements that its documentation doesn't promise, and promised those that
	// it does, with the source: by their ids.
	declined, promised sources
}

// sources are sentences with a link, by the ids of requirements.
type sources map[string]string

// of finds the sentence for a requirement.
func (s sources) of(id string) (source string, ok bool) {
	for ids, source := range s {
		if slices.Contains(strings.Fields(ids), id) {
			return source, true
		}
	}
	return "", false
}

// The pages of the others' documentation.
const (
	fiberPage   = "(https://docs.gofiber.io/middleware/idempotency)"
	expressPage = "(https://www.npmjs.com/package/express-idempotency)"
	corePage    = "(https://www.npmjs.com/package/@node-idempotency/core)"
)

var all = []other{
	{
		name: "Fiber", pkg: "github.com/gofiber/fiber/v3", serve: serveFiber,
		setup: "Its idempotency middleware with the [defaults]" + fiberPage + ", which keep answers in memory, and the draft's header.",
		declined: sources{
			"conflict.refused":                     "No [option]" + fiberPage + " compares payloads.",
			"callers.other scope.path scope.query": "The [key]" + fiberPage + " alone names a call.",
			"keys.quoted":                          "By default a [key]" + fiberPage + " has the 36 characters of a UUID. All other keys were sent bare.",
			"crash.kept crash.once":                "By default answers are in the [memory]" + fiberPage + " of the process.",
		},
	},
	{
		name: "express-idempotency", pkg: "express-idempotency", node: "express-idempotency.mjs",
		setup: "On Express 4 with the [defaults]" + expressPage + ", which keep answers in memory.",
		declined: sources{
			"callers.other":         "A request is the same if its [address, method, query and body]" + expressPage + " are.",
			"failures.failed":       "By default only answers [from 200 to 299]" + expressPage + " are kept.",
			"crash.kept crash.once": "The default keeps answers in memory, and its page says that it [isn't for production]" + expressPage + ".",
		},
	},
	{
		name: "node-idempotency", pkg: "@node-idempotency/core", node: "node-idempotency.mjs",
		setup: "Its [core and its adapter for memory]" + corePage + ", called by a server on Express, which answers refusals with the draft's statuses.",
		declined: sources{
			"callers.other":         "A call is named by its key, method and path, and compared by its [body]" + corePage + ".",
			"crash.kept crash.once": "The [adapter]" + corePage + " keeps answers in memory, and its page says that it [isn't for production](https://www.npmjs.com/package/@node-idempotency/storage-adapter-memory).",
		},
	},
	{
		name: "Semel's middleware", serve: serveMiddleware,
		setup: "Guards of [`semelhttp`](handlers.md) on the embedded store, for operations that are `Financial`.",
	},
	{
		name: "Semel's proxy", serve: serveProxy,
		setup: "The [proxy](service.md) in front of the shop, on the embedded store, for operations that are `Financial`.",
	},
	{
		name: "Semel's execution API", serve: serveExecution,
		setup: "A server that asks the [execution API](execution-api.md) whether to do the work, and names a call by its key, path and credential. The API is on the embedded store.",
	},
}
