package bench

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/performance.md from bench/results.txt")

// results has what the last make bench has printed: lines with a name and a value, and those of
// benchmarks.
type results struct {
	facts   map[string]string
	figures map[string]map[string]float64 // by benchmark, without processors, and unit
}

func parseResults(text string) results {
	r := results{map[string]string{}, map[string]map[string]float64{}}
	for line := range strings.Lines(text) {
		name, rest, found := strings.Cut(line, ":")
		fields := strings.Fields(line)
		switch {
		case len(fields) > 3 && strings.HasPrefix(line, "Benchmark"):
			of := map[string]float64{}
			for i := 2; i+1 < len(fields); i += 2 {
				of[fields[i+1]], _ = strconv.ParseFloat(fields[i], 64)
			}
			bench := strings.TrimPrefix(fields[0], "Benchmark")
			r.figures[bench[:strings.LastIndexByte(bench, '-')]] = of
		case found:
			r.facts[name] = strings.TrimSpace(rest)
		}
	}
	return r
}

// figure shows a number with three digits, in a unit; a dash if it wasn't measured.
func (r results) figure(bench, unit string, per float64) string {
	v, ok := r.figures[bench][unit]
	if !ok {
		return "–"
	}
	return digits(v / per)
}

// digits shows three digits of a number.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.005:
		return "< 0.01"
	case v < 9.95:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case v < 999.5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

var stores = []struct{ bench, name string }{{"memory", "memory"}, {"pebble", "embedded"}, {"postgres", "PostgreSQL"}, {"redis", "Redis"}}

// costs is the table of what calls cost.
func (r results) costs() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s on %s, with %s, PostgreSQL %s and Redis %s, which syncs each write.\n\n",
		r.facts["date"], r.facts["machine"], r.facts["go"], r.facts["postgres"], r.facts["redis"])
	b.WriteString("| store | callers | | bytes of the log | syncs | round trips | processor time, µs | of the server, µs | a second |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, st := range stores {
		for _, callers := range []string{"1", "64"} {
			for _, unit := range []string{"pair", "replay"} {
				of := "Cost/" + st.bench + "/callers=" + callers + "/" + unit
				name := map[string]string{"pair": "first call", "replay": "replay"}[unit]
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", st.name, callers, name,
					r.figure(of, "bytes/"+unit, 1), r.figure(of, "syncs/"+unit, 1), r.figure(of, "roundtrips/"+unit, 1),
					r.figure(of, "cpu-ns/"+unit, 1000), r.figure(of, "server-cpu-ns/"+unit, 1000), r.figure(of, unit+"s/s", 1))
			}
		}
	}
	return b.String()
}

// doors is the table of what a request costs at the guard and at the proxy.
func (r results) doors() string {
	var b strings.Builder
	b.WriteString("| | allocations | processor time, µs | beside it without Semel, per request and processor |\n|---|---|---|---|\n")
	for _, row := range []struct{ name, bench string }{{"a handler", "Bare"}, {"the same, guarded: first call", "First"}, {"replay", "Replay"}} {
		fmt.Fprintf(&b, "| %s | %s | %s | |\n", row.name, r.figure(row.bench, "allocs/op", 1), r.figure(row.bench, "ns/op", 1000))
	}
	for _, st := range stores[:2] {
		for _, callers := range crowds {
			of := fmt.Sprintf("Proxy/%s/callers=%d", st.bench, callers)
			fmt.Fprintf(&b, "| a reverse proxy beside the %s store, %d callers | %s | %s | |\n| Semel's: first call | %s | %s | %s |\n", st.name, callers,
				r.figure(of, "bare-allocs", 1), r.figure(of, "bare-cpu-µs", 1), r.figure(of, "semel-allocs", 1), r.figure(of, "semel-cpu-µs", 1), r.figure(of, "cpu-ratio", 1))
		}
	}
	return b.String()
}

// What a busy day looks like, on paper.
const (
	peak    = 5   // the busiest second has so many times the calls of the average one
	replays = 0.1 // of the calls that are repeated once
)

// capacity is the table of what so many calls a day need.
func (r results) capacity() string {
	var b strings.Builder
	b.WriteString("| first calls a day | a second, at the peak | store | log a day, GB | records of a day, GB | syncs a second | round trips a second | processors | of the server |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, day := range []float64{1e6, 1e8, 1e10} {
		second := day / (24 * 60 * 60) * peak
		for _, st := range stores[1:] {
			at := "Cost/" + st.bench + "/callers=64/"
			cost := func(name string, per float64) string {
				pair, ok := r.figures[at+"pair"][name+"/pair"]
				if !ok {
					return "–"
				}
				return digits((pair + replays*r.figures[at+"replay"][name+"/replay"]) * per)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", digits(day), digits(second), st.name,
				cost("bytes", day/1e9), cost("kept-bytes", day/1e9), cost("syncs", second), cost("roundtrips", second), cost("cpu-ns", second/1e9), cost("server-cpu-ns", second/1e9))
		}
	}
	return b.String()
}

// TestPerformancePage holds docs/performance.md to bench/results.txt. It measures nothing.
func TestPerformancePage(t *testing.T) {
	const file = "../docs/performance.md"
	raw, err := os.ReadFile("results.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := parseResults(string(raw))
	want := string(page)
	for name, table := range map[string]string{"costs": r.costs(), "doors": r.doors(), "capacity": r.capacity()} {
		before, rest, found := strings.Cut(want, "<!-- make bench: "+name+" -->\n")
		_, after, ended := strings.Cut(rest, "<!-- end -->\n")
		if !found || !ended {
			t.Fatalf("%s has no place for %s", file, name)
		}
		want = before + "<!-- make bench: " + name + " -->\n" + table + "<!-- end -->\n" + after
	}
	switch {
	case want == string(page):
	case *update:
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s isn't what results.txt gives: run make bench, or this test with -update", file)
	}
}
