package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// under reports whether a package (path within the module) is one of these or
// lies below one.
func under(rel string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return rel == d || strings.HasPrefix(rel, d+"/") })
}

// An importRule forbids imports of some packages in production code.
type importRule struct {
	name string
	why  string
	// from selects the packages that the rule applies to, by path in the module.
	from func(rel string) bool
	// forbids selects what they must not import, by import path.
	forbids func(importPath string) bool
	// direct limits the rule to a package's own imports. Otherwise it covers everything
	// that is linked in with the package.
	direct bool
}

// testSupport are packages made for tests to import, or to run tests.
var testSupport = []string{
	"store/storetest", "internal/rig/clause", "internal/archtest", "internal/enginetest", "internal/rig/mutate", "internal/rig/pgtest", "internal/rig/redistest", "internal/rig/servertest", "internal/rig/gatewaytest", "internal/rig/agents",
	"internal/rig/clienttest", "internal/rig/clienttypes", "internal/rig/demotest", "internal/rig/diagrams", "internal/rig/site", "internal/rig/faultnet", "internal/rig/frameworktest", "internal/rig/storm", "internal/rig/chaos", "internal/rig/history", "internal/rig/thorough", "internal/rig/turns", "internal/rig/upgrade", "internal/rig/yamlschema", "semeltest", "door/semelhttp/semelhttptest", "door/doortest",
}

var concreteStores = []string{"store/memstore", "store/pebblestore", "store/pgstore", "store/redisstore"}

// protocols are what only doors and clients speak: packages of the standard library, and
// libraries.
var protocols = []string{
	"net/http", "net/rpc", "net/smtp", "net/mail", "net/textproto", "html", "text/template", "mime", "encoding/xml",
	"google.golang.org/grpc", "connectrpc.com/connect", "golang.org/x/net/http2", "golang.org/x/net/websocket",
}

var importRules = []importRule{
	{
		name: "the root package imports the standard library, store, internal/canon and its own parts only",
		why:  "whoever embeds the engine gets no dependency with it",
		from: func(rel string) bool { return rel == "." },
		forbids: func(path string) bool {
			return !standard(path) && relPath(path) != "store" && !under(relPath(path), "internal/canon") && !under(relPath(path), "internal/engine")
		},
	},
	{
		name:    "parts of the engine know the record model and not the engine, nor each other",
		why:     "each is one idea that can be read by itself",
		from:    func(rel string) bool { return under(rel, "internal/engine") },
		forbids: func(path string) bool { return ours(path) && relPath(path) != "store" },
		direct:  true,
	},
	{
		name: "store and its codec import the standard library and internal/canon only",
		why:  "whoever writes a store learns one package, and gets no dependency with it",
		from: func(rel string) bool { return rel == "store" || rel == "store/codec" },
		forbids: func(path string) bool {
			return !standard(path) && relPath(path) != "store" && !under(relPath(path), "internal/canon")
		},
	},
	{
		name: "only the service, cmd, examples, bench and test support import a concrete store",
		why:  "everything else works on any store, and links in none",
		from: func(rel string) bool {
			return !under(rel, "service", "internal/service", "cmd", "examples", "bench") && !under(rel, testSupport...) && !under(rel, concreteStores...)
		},
		forbids: func(path string) bool { return under(relPath(path), concreteStores...) },
	},
	{
		name:    "stores do not import each other",
		why:     "each must be usable without the drivers of the others",
		from:    func(rel string) bool { return under(rel, concreteStores...) },
		forbids: func(path string) bool { return under(relPath(path), concreteStores...) },
		direct:  true,
	},
	{
		name:    "stores do not import doors",
		why:     "a store keeps records and knows no protocol",
		from:    func(rel string) bool { return under(rel, "store") },
		forbids: func(path string) bool { return under(relPath(path), "door", "safehttp") },
	},
	{
		name: "the engine, the record model and the store in memory link no protocol",
		why:  "how calls come in, and what is said to people, is up to the doors",
		from: func(rel string) bool {
			return rel == "." || rel == "store" || under(rel, "store/codec", "store/memstore", "internal/canon", "internal/engine", "internal/gather", "internal/hub", "internal/bootclock", "internal/offsetclock")
		},
		forbids: func(path string) bool { return under(path, protocols...) || under(path, "net", "database/sql") },
	},
	{
		name:    "stores import no protocol but their server's",
		why:     "a store keeps records, and its driver speaks to the server",
		from:    func(rel string) bool { return under(rel, concreteStores...) },
		forbids: func(path string) bool { return under(path, protocols...) },
		direct:  true,
	},
	{
		name:    "only doors write refusals",
		why:     "an error of the engine has a code, and its door turns that into a status",
		from:    func(rel string) bool { return !under(rel, "door", "service", "internal/service", "internal/problem") },
		forbids: func(path string) bool { return under(relPath(path), "internal/problem") },
		direct:  true,
	},
	{
		name:    "production code imports no template engine",
		why:     "it finds methods by name, so the linker keeps every exported method of every library: half as much again",
		from:    func(rel string) bool { return !under(rel, testSupport...) },
		forbids: func(path string) bool { return under(path, "text/template", "html/template") },
		direct:  true,
	},
	{
		name: "production code imports no test support",
		why:  "a test library in a user's binary is weight and risk for nothing",
		from: func(rel string) bool { return !under(rel, testSupport...) },
		forbids: func(path string) bool {
			return under(relPath(path), testSupport...) || under(path, "testing", "pgregory.net/rapid", "github.com/gowebpki/jcs")
		},
		direct: true, // other modules import what they like
	},
	{
		name:    "only the judge of other services looks for orders of histories",
		why:     "a search that may take seconds belongs where somebody waits for its verdict",
		from:    func(rel string) bool { return !under(rel, testSupport...) && rel != "internal/check" },
		forbids: func(path string) bool { return under(path, "github.com/anishathalye/porcupine") },
		direct:  true,
	},
	{
		name:    "a guard on the store in memory needs the standard library only",
		why:     "a program that starts with it gets no dependency",
		from:    func(rel string) bool { return rel == "door/semelhttp" || rel == "store/memstore" },
		forbids: func(path string) bool { return !standard(path) && !ours(path) },
	},
}

// importFaults applies one rule to the packages.
func importFaults(rule importRule, pkgs []pkg) []string {
	var faults []string
	for _, p := range pkgs {
		if !rule.from(p.rel()) {
			continue
		}
		paths := p.Deps
		if rule.direct {
			paths = p.Imports
		}
		for _, path := range paths {
			if rule.forbids(path) {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", p.rel(), relPath(path), rule.why))
			}
		}
	}
	return faults
}

// layers are the directories of the module from the bottom up. A package may import from
// its own directory and from lower layers, but not from another directory of its layer.
// "=" before a directory excludes those below it, "+" excludes the directory itself.
var layers = [][]string{
	{"docs", "internal/argschema", "internal/body", "internal/bootclock", "internal/canon", "internal/form", "internal/gather", "internal/heapfloor", "internal/hub", "internal/network", "internal/openapi", "internal/origin", "internal/paging", "internal/pasted", "internal/peer", "internal/prefer", "internal/problem", "internal/replace", "internal/seldom", "internal/shape", "internal/spelling", "internal/sse", "internal/words", "internal/rig/stage", "safehttp"},
	{"internal/docs", "internal/jsonscan"},
	{"internal/answer", "internal/credential", "internal/finding", "internal/jsonrpc", "internal/keytemplate", "internal/paramheader", "internal/strictyaml"},
	{"internal/selector", "=internal/check"},
	{"=store"},
	{"store/codec", "internal/behind", "internal/dueindex", "internal/engine", "internal/meaning", "internal/nodes", "internal/offsetclock", "internal/payload", "internal/reference", "internal/terms", "=internal/verdict"},
	{".", "internal/streams"},
	{"internal/settle"},
	{"=door", "internal/conflicts", "internal/extract", "internal/reconcile", "internal/relay", "internal/tally", "internal/wire"},
	{"store", "evidence", "archive", "internal/stdio"},
	{"door/judge", "internal/toolcall", "+internal/verdict", "semeltest"},
	{"door/semelhttp", "door/inbox"},
	{"door/semelproxy", "internal/lookup"},
	{"shield"},
	{"commerce"},
	{"door", "dispatch"},
	{"+internal/service", "+internal/check", "internal/codes", "internal/payments", "client"},
	{"service/admin", "service/tracing"},
	{"service/dashboard"},
	{"=internal/service"},
	{"=service"},
	{"cmd", "examples", "bench"},
}

// covers reports whether a package belongs to a directory of layers.
func covers(dir, rel string) bool {
	if only, ok := strings.CutPrefix(dir, "="); ok {
		return rel == only
	}
	if parent, ok := strings.CutPrefix(dir, "+"); ok {
		return rel != parent && under(rel, parent)
	}
	return under(rel, dir)
}

// layerOf returns the layer and directory that a package belongs to.
func layerOf(rel string) (layer int, dir string, ok bool) {
	for i, dirs := range layers {
		for _, d := range dirs {
			if covers(d, rel) {
				return i, d, true
			}
		}
	}
	return 0, "", false
}

// layerFaults finds imports that lead upwards or sideways.
func layerFaults(pkgs []pkg) []string {
	var faults []string
	for _, p := range pkgs {
		if under(p.rel(), testSupport...) {
			continue // it may import whatever its tests need
		}
		from, dir, ok := layerOf(p.rel())
		if !ok {
			faults = append(faults, fmt.Sprintf("%s belongs to no layer: give its directory one", p.rel()))
			continue
		}
		for _, path := range p.Imports {
			if !ours(path) {
				continue
			}
			to, target, ok := layerOf(relPath(path))
			if ok && target != dir && to >= from {
				faults = append(faults, fmt.Sprintf("%s imports %s: imports lead downwards only", p.rel(), relPath(path)))
			}
		}
	}
	return faults
}

// TestImports: only the edge knows protocols. The engine decides, without knowing any
// store or protocol, and stores know neither.
func TestImports(t *testing.T) {
	clause.Proves(t, "CORE-BOUND.1", "CORE-BOUND.2")
	pkgs := packages(t)
	for _, rule := range importRules {
		t.Run(rule.name, func(t *testing.T) { report(t, importFaults(rule, pkgs)) })
	}
	t.Run("imports lead downwards only", func(t *testing.T) { report(t, layerFaults(pkgs)) })
}

// TestImportRulesFind gives each rule one package that breaks it, and a similar one that
// doesn't.
func TestImportRulesFind(t *testing.T) {
	const m = modulePath
	broken := map[string]pkg{
		importRules[0].name:  {ImportPath: m, Deps: []string{"context", m + "/internal/canon", m + "/evidence"}},
		importRules[1].name:  {ImportPath: m + "/internal/engine/line", Imports: []string{m + "/store", m}},
		importRules[2].name:  {ImportPath: m + "/store", Deps: []string{"context", m + "/internal/canon", m}},
		importRules[3].name:  {ImportPath: m + "/door/semelhttp", Deps: []string{m, m + "/store/pebblestore"}},
		importRules[4].name:  {ImportPath: m + "/store/pebblestore", Imports: []string{m, m + "/store/memstore"}},
		importRules[5].name:  {ImportPath: m + "/store/memstore", Deps: []string{m, m + "/door/semelhttp"}},
		importRules[6].name:  {ImportPath: m, Deps: []string{"context", "net/http/httptest"}},
		importRules[7].name:  {ImportPath: m + "/store/pebblestore", Imports: []string{m, "net", "html/template"}},
		importRules[8].name:  {ImportPath: m + "/store/redisstore", Imports: []string{m, m + "/internal/problem"}},
		importRules[9].name:  {ImportPath: m + "/internal/service", Imports: []string{m, "html/template"}},
		importRules[10].name: {ImportPath: m + "/internal/service", Imports: []string{m, "testing/fstest"}},
		importRules[11].name: {ImportPath: m + "/door/semelhttp", Imports: []string{m, "github.com/anishathalye/porcupine"}},
		importRules[12].name: {ImportPath: m + "/door/semelhttp", Deps: []string{m, "net/http", "vendor/golang.org/x/net/idna", "golang.org/x/time/rate"}},
	}
	sound := []pkg{
		{ImportPath: m + "/store", Imports: []string{"context"}, Deps: []string{"context", m + "/internal/canon"}},
		{ImportPath: m, Imports: []string{"context"}, Deps: []string{"context", m + "/internal/canon"}},
		{ImportPath: m + "/store/memstore", Imports: []string{m}, Deps: []string{m, m + "/internal/canon"}},
		{ImportPath: m + "/store/storetest", Imports: []string{m, m + "/store/memstore", "testing"}, Deps: []string{m, m + "/store/memstore", "testing"}},
		{ImportPath: m + "/internal/check", Imports: []string{m + "/internal/pasted", "github.com/anishathalye/porcupine"}},
		{ImportPath: m + "/cmd/semel/internal/cli", Imports: []string{m + "/store/memstore"}, Deps: []string{m, m + "/store/memstore"}},
	}
	for _, rule := range importRules {
		t.Run(rule.name, func(t *testing.T) {
			bad := broken[rule.name]
			paths := bad.Deps
			if rule.direct {
				paths = bad.Imports
			}
			wantFaults(t, importFaults(rule, append(sound, bad)), bad.rel()+" imports "+relPath(paths[len(paths)-1]))
		})
	}
	t.Run("imports lead downwards only", func(t *testing.T) {
		wantFaults(t, layerFaults(append(sound,
			pkg{ImportPath: m, Imports: []string{m + "/store/memstore"}},
			pkg{ImportPath: m + "/evidence", Imports: []string{m, m + "/store/memstore"}},
			pkg{ImportPath: m + "/door/semelproxy", Imports: []string{m + "/door/semelhttp"}},
			pkg{ImportPath: m + "/helpers"},
		)), ". imports store/memstore", "evidence imports store/memstore", "helpers belongs to no layer")
	})
}
