package metrics_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/metrics"
)

var update = flag.Bool("update", false, "write docs/metrics.md and the dashboard of Grafana anew")

const (
	page      = "../../../docs/metrics.md"
	dashboard = "../../../monitoring/grafana/semel.json"
	rules     = "../../../monitoring/prometheus/rules.yml"
	runbook   = "../../../docs/runbook.md"
)

// TestFilesAreCurrent compares what is made from the table with the files in the tree.
func TestFilesAreCurrent(t *testing.T) {
	for file, want := range map[string]string{page: thePage(), dashboard: theDashboard(t)} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s isn't what the table says (%v): run go test ./internal/service/metrics -update", file, err)
		}
	}
}

func thePage() string {
	var b strings.Builder
	b.WriteString(`# Metrics

- **For** operators who watch Semel with Prometheus or OpenTelemetry.
- **Afterwards** you can scrape or push the metrics, load the alerts and the dashboard, and read each number.

The admin listener of ` + "`semel serve`" + ` has ` + "`GET /metrics`" + ` for Prometheus, for callers with the role viewer. Set ` + "`metrics.otlp`" + `, or the variables of OpenTelemetry such as ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`" + `, to push the same metrics by OTLP. Counters are those of one node since it was started: sum their rates over all nodes. A key is never a label; [GET /v1/figures](service.md#health-stopping-limits) lists records.

[` + "`monitoring/prometheus/rules.yml`" + `](../monitoring/prometheus/rules.yml) has alerts, and the [runbook](runbook.md) what to do about each. [` + "`monitoring/grafana/semel.json`" + `](../monitoring/grafana/semel.json) is a dashboard for Grafana. Histograms have classic buckets, and that of added time has native ones, too, where Prometheus asks for them.

This page is made from the table in ` + "`internal/service/metrics`" + `.

| metric | kind | what it says | labels |
|---|---|---|---|
`)
	for _, m := range metrics.Table {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, m.Help, labels)
	}
	b.WriteString("\nThe usual metrics of Go programs and processes, `go_…` and `process_…`, are there too.\n\n| label | values |\n|---|---|\n")
	for _, label := range slices.Sorted(maps.Keys(metrics.Labels)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", label, metrics.Labels[label])
	}
	return b.String()
}

type object = map[string]any

// theDashboard has a panel for each metric.
func theDashboard(t *testing.T) string {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	for i, m := range metrics.Table {
		by := strings.Join(m.Labels, ", ")
		unit, exprs := "short", map[string]string{"": fmt.Sprintf("max by (%s) (%s)", by, m.Name)}
		switch m.Kind {
		case metrics.Counter:
			unit, exprs = "ops", map[string]string{"": fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, m.Name)}
		case metrics.Histogram, metrics.Sizes:
			exprs = map[string]string{}
			for _, q := range []string{"0.5", "0.99"} {
				exprs["p"+strings.TrimPrefix(q, "0.")+" "] = fmt.Sprintf("histogram_quantile(%s, sum by (%s) (rate(%s_bucket[$__rate_interval])))", q, strings.Join(append([]string{"le"}, m.Labels...), ", "), m.Name)
			}
		}
		switch {
		case strings.HasSuffix(m.Name, "_timestamp_seconds"):
			unit = "dateTimeFromNow"
			exprs[""] = "1000 * " + exprs[""]
		case strings.HasSuffix(m.Name, "_seconds"):
			unit = "s"
		case strings.HasSuffix(m.Name, "_bytes"):
			unit = "bytes"
		case strings.HasSuffix(m.Name, "_ratio"):
			unit = "percentunit"
		}
		var targets []object
		for _, legend := range slices.Sorted(maps.Keys(exprs)) {
			var names []string
			for _, l := range m.Labels {
				names = append(names, "{{"+l+"}}")
			}
			targets = append(targets, object{"datasource": source, "expr": exprs[legend], "legendFormat": legend + strings.Join(names, " "), "refId": string(rune('A' + len(targets)))})
		}
		panels = append(panels, object{
			"id": i + 1, "type": "timeseries", "title": strings.TrimSuffix(strings.TrimPrefix(m.Name, "semel_"), "_total"), "description": m.Help,
			"datasource": source, "targets": targets, "fieldConfig": object{"defaults": object{"unit": unit, "min": 0}, "overrides": []object{}},
			"gridPos": object{"x": i % 3 * 8, "y": i / 3 * 8, "w": 8, "h": 8},
		})
	}
	text, err := json.MarshalIndent(object{
		"title": "Semel", "uid": "semel", "schemaVersion": 39, "editable": true, "refresh": "30s", "time": object{"from": "now-3h", "to": "now"},
		"templating": object{"list": []object{{"name": "datasource", "type": "datasource", "query": "prometheus"}}}, "panels": panels,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// expressions of the alerts and of the dashboard, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, a := range alerts(t) {
		all[a.Alert] = a.Expr
	}
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title+" "+target.LegendFormat] = target.Expr
		}
	}
	return all
}

type alert struct {
	Alert       string `json:"alert" required:"true"`
	Expr        string `json:"expr" required:"true"`
	Runbook     string
	Description string
}

var (
	alertLine   = regexp.MustCompile(`(?ms)^      - alert: (\w+)\n(.*?)(?:^$|\z)`)
	exprLine    = regexp.MustCompile(`(?ms)^        expr: (.*?)\n        \w`)
	runbookLine = regexp.MustCompile(`(?m)^          runbook: docs/runbook\.md#(\w+)$`)
)

// alerts reads the rules, whose form promtool checks.
func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, m := range alertLine.FindAllStringSubmatch(string(text), -1) {
		expr, runbook := exprLine.FindStringSubmatch(m[2]), runbookLine.FindStringSubmatch(m[2])
		if expr == nil || runbook == nil {
			t.Fatalf("%s has no expression or no section of the runbook", m[1])
		}
		all = append(all, alert{Alert: m[1], Expr: expr[1], Runbook: runbook[1]})
	}
	if len(all) != strings.Count(string(text), "- alert:") {
		t.Fatalf("%d alerts were read", len(all))
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\bsemel_\w+`)
	byList     = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matcher    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
)

// faults says what an expression has that the table hasn't.
func faults(expr string) (all []string) {
	var labels []string
	for _, name := range metricName.FindAllString(expr, -1) {
		m, ok := lookup(name)
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, is := strings.CutSuffix(name, suffix); is && !ok {
				m, ok = lookup(base)
				ok = ok && (m.Kind == metrics.Histogram || m.Kind == metrics.Sizes)
			}
		}
		if !ok {
			all = append(all, "there is no metric "+name)
		}
		labels = append(labels, m.Labels...)
	}
	for _, list := range byList.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(list[1], ",") {
			if label = strings.TrimSpace(label); label != "" && label != "le" && label != "instance" && !slices.Contains(labels, label) {
				all = append(all, "no metric here has the label "+label)
			}
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
		if !slices.Contains(labels, m[1]) {
			all = append(all, "no metric here has the label "+m[1])
			continue
		}
		for value := range strings.SplitSeq(m[2], "|") {
			if !strings.Contains(metrics.Labels[m[1]], "`"+value+"`") {
				all = append(all, "the label "+m[1]+" is never "+value)
			}
		}
	}
	return all
}

func TestExpressionsUseWhatThereIs(t *testing.T) {
	all := expressions(t)
	if len(all) < len(metrics.Table) {
		t.Fatalf("there are %d expressions", len(all))
	}
	for where, expr := range all {
		for _, fault := range faults(expr) {
			t.Errorf("%s: %s in %s", where, fault, expr)
		}
	}
	for _, wrong := range []string{
		`rate(semel_decision_total[5m])`, `sum by (key) (semel_decisions_total)`, `semel_decisions_total{decision="executed"}`, `semel_ready{state="held"}`, `semel_ready_bucket`,
	} {
		if len(faults(wrong)) == 0 {
			t.Errorf("nothing is wrong with %s", wrong)
		}
	}
}

func TestTheTableIsComplete(t *testing.T) {
	for _, m := range metrics.Table {
		if want := m.Kind == metrics.Counter; strings.HasSuffix(m.Name, "_total") != want || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: %s", m.Name, m.Help)
		}
		for _, label := range m.Labels {
			if metrics.Labels[label] == "" {
				t.Errorf("%s: the values of %s aren't told", m.Name, label)
			}
		}
	}
}

func TestEachAlertHasASectionOfTheRunbook(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	all := alerts(t)
	if len(all) != len(sections) {
		t.Errorf("%d alerts and %d sections", len(all), len(sections))
	}
	for i, a := range all {
		if name, _, _ := strings.Cut(sections[i], "\n"); name != a.Alert || a.Runbook != strings.ToLower(name) {
			t.Errorf("the alert %s has the section %s", a.Alert, name)
		}
		if !strings.HasSuffix(strings.TrimSpace(sections[i]), "\n```") {
			t.Errorf("the section of %s doesn't end with a command", a.Alert)
		}
	}
}

// TestAlertsFire has promtool check the alerts, and compare when they fire with
// rules_test.yml.
func TestAlertsFire(t *testing.T) {
	clause.Proves(t, "MAP-MON.2", "MAP-MON.3")
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal(err)
		}
		t.Skip("promtool is missing: install the package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = "../../../monitoring/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// The values of a closed set are those of the code.
func TestTheLabelsAreThoseOfTheCode(t *testing.T) {
	constant := regexp.MustCompile(`(?m)^(?:const )?\s*Name\s+= "(\w+)"$|^const Name = "(\w+)"$`)
	var doors, decisions []string
	for _, pattern := range []string{"../../../door/*/*.go", "../../../door/*/*/*.go", "../api/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
				doors = append(doors, m[1])
			}
		}
	}
	for _, d := range semel.Decisions() {
		decisions = append(decisions, string(d))
	}
	for label, want := range map[string][]string{"door": doors, "decision": decisions} {
		var said []string
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(metrics.Labels[label], -1) {
			said = append(said, m[1])
		}
		slices.Sort(said)
		slices.Sort(want)
		if !slices.Equal(said, want) {
			t.Errorf("the values of %s are %q, and the page says %q", label, want, said)
		}
	}
}

// TestNames has Prometheus' own linter, that of promtool check metrics, read all metrics.
func TestNames(t *testing.T) {
	var text strings.Builder
	for _, m := range metrics.Table {
		kind := m.Kind
		if kind == metrics.Sizes {
			kind = metrics.Histogram
		}
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, kind)
		if kind != metrics.Histogram {
			fmt.Fprintf(&text, "%s 1\n", m.Name)
			continue
		}
		fmt.Fprintf(&text, "%s_bucket{le=\"+Inf\"} 1\n%[1]s_sum 1\n%[1]s_count 1\n", m.Name)
	}
	problems, err := promlint.New(strings.NewReader(text.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// lookup finds a metric of the table.
func lookup(name string) (metrics.Metric, bool) {
	i := slices.IndexFunc(metrics.Table, func(m metrics.Metric) bool { return m.Name == name })
	if i < 0 {
		return metrics.Metric{}, false
	}
	return metrics.Table[i], true
}
