package others

import (
	"slices"
	"strings"
	"time"
)

// other is one of those that are judged.
type other struct {
	name  string            // of its column
	pkg   string            // whose version is pinned; empty is Semel, of this tree
	setup string            // how it is set up, and where its documentation says so
	serve func()            // in Go,
	node  string            // or a program in npm
	redis bool              // it needs a Redis
	env   string            // a variable more
	paths *strings.Replacer // from the shop's to its own
	// patience is how long a retry may be refused until its key counts as stuck; by default two
	// seconds.
	patience time.Duration
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
	fiberPage      = "(https://docs.gofiber.io/middleware/idempotency)"
	expressPage    = "(https://www.npmjs.com/package/express-idempotency)"
	corePage       = "(https://www.npmjs.com/package/@node-idempotency/core)"
	powertoolsPage = "(https://docs.aws.amazon.com/powertools/typescript/latest/features/idempotency/)"
	restatePage    = "(https://docs.restate.dev/services/invocation/http)"
)

// byHand is what a look-up before the handler and a write after it don't do.
var byHand = sources{
	"conflict.refused":                     "It compares no payloads.",
	"in-flight.once in-flight.answer":      "It claims nothing before the handler runs.",
	"callers.other scope.path scope.query": "The key alone names a call.",
	"crash.kept crash.once":                "Answers are in the memory of the process.",
}

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
		name: "Echo, by hand", pkg: "github.com/labstack/echo/v5", serve: serveEcho,
		setup:    "Echo has no middleware for keys, so programs write one: this looks the key up before the handler, and keeps the answer after it by the [body dump](https://echo.labstack.com/docs/middleware/body-dump). It is ours, and Echo promises none of it.",
		declined: byHand,
	},
	{
		name: "gin, by hand", pkg: "github.com/gin-gonic/gin", serve: serveGin,
		setup:    "The same in a [middleware](https://gin-gonic.com/en/docs/middleware/custom-middleware/) for gin, which has none for keys either.",
		declined: byHand,
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
		name: "Powertools", pkg: "@aws-lambda-powertools/idempotency", node: "powertools.mjs", redis: true,
		setup:    "The [function wrapper and the layer for caches]" + powertoolsPage + " for TypeScript on Redis, with the header as the key. A small server makes events of requests, and answers the documented errors with the draft's statuses.",
		patience: 5 * time.Second, // longer than its function may take
		declined: sources{
			"conflict.refused":          "By default [another payload]" + powertoolsPage + " gets the first result.",
			"callers.other scope.query": "The [expression for the key]" + powertoolsPage + " alone names a call of a function.",
			"crash.once":                "A function that doesn't end [runs again]" + powertoolsPage + " when its time is over (\"Lambda timeouts\").",
		},
	},
	{
		name: "Powertools, validating", pkg: "@aws-lambda-powertools/idempotency", node: "powertools.mjs", redis: true, env: "VALIDATE=1",
		setup:    "The same with [payload validation]" + powertoolsPage + " of the body.",
		patience: 5 * time.Second,
		promised: sources{
			"replay.same": "The same payload gets the [same result]" + powertoolsPage + ". The layer for caches drops the hash that it compares with when a function ends, so it refuses an honest retry ([issue 5705](https://github.com/aws-powertools/powertools-lambda-typescript/issues/5705), mended since this version).",
		},
	},
	{
		name: "Restate", pkg: "@restatedev/restate-server", serve: serveRestate, paths: strings.NewReplacer("/charges", "/shop/charges", "/refunds", "/shop/refunds"),
		setup: "Its [ingress]" + restatePage + ", and the shop as a service with the SDK for TypeScript, whose effect is a step of its journal.",
		declined: sources{
			"conflict.refused callers.other scope.query": "The [key]" + restatePage + " alone names a call of a handler.",
			"crash.once": "A [step](https://docs.restate.dev/develop/ts/durable-steps) that fails is retried. For a bank that takes keys, the SDK makes one that stays the same.",
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
