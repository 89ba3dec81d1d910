package benchproxy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRunComparesBothProxies(t *testing.T) {
	dir := t.TempDir()
	rounds := 0 // of the proxies, and one of the API
	report, err := Run(t.Context(), Options{
		Compare: true, Duration: 200 * time.Millisecond, Connections: 8, Rounds: 2, Dir: dir,
		Progress: func(string, ...any) { rounds++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if rounds != 3 || len(report.Rounds) != 2 || report.API.Pairs == 0 || report.API.PairsPerSecond <= 0 || report.Semel.Requests == 0 || report.Bare == nil || report.Bare.Requests == 0 {
		t.Errorf("%d rounds, report %+v", rounds, report)
	}
	for _, s := range []*Side{&report.Semel, report.Bare} {
		if s.RequestsPerSecond <= 0 || s.P50 <= 0 || s.P99 < s.P50 || s.Max < s.P99 || s.Seconds < 0.2 || s.Errors != 0 {
			t.Errorf("side %+v", s)
		}
	}
	if report.Ratio <= 0 || report.RatioOfTotals <= 0 {
		t.Errorf("ratios %v and %v", report.Ratio, report.RatioOfTotals)
	}
	var text strings.Builder
	report.Print(&text)
	if !strings.Contains(text.String(), "semel / bare: 0.") && !strings.Contains(text.String(), "semel / bare: 1.") {
		t.Errorf("printed %s", text.String())
	}
	doc, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ratio":`, `"requests_per_second":`, `"p50_us":`, `"p99_us":`, `"bare":{`} {
		if !strings.Contains(string(doc), want) {
			t.Errorf("%s is missing in %s", want, doc)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

func TestRunWithoutAComparison(t *testing.T) {
	report, err := Run(t.Context(), Options{Duration: 50 * time.Millisecond, Connections: 2, Rounds: 1, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if report.Semel.Requests == 0 || report.Bare != nil || report.Ratio != 0 || report.Rounds != nil {
		t.Errorf("report %+v", report)
	}
}

func TestEveryRequestThroughSemelIsRecorded(t *testing.T) {
	opts := Options{Connections: 4}.withDefaults()
	rig, err := newRig(t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := newLoad(rig.semel.addr(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	c := l.clients[0]
	if err := c.request(); err != nil {
		t.Fatal(err)
	}
	// The same key again.
	if _, err := c.conn.Write([]byte(strings.Replace(c.start, "-0-", "-0-1", 1) + c.end)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 4096)
	n, err := c.conn.Read(head)
	if err != nil || !strings.Contains(string(head[:n]), "Idempotency-Replayed: true") {
		t.Errorf("the duplicate got %q, %v", head[:n], err)
	}
}

func TestFailuresAreReported(t *testing.T) {
	opts := Options{Connections: 2, Rounds: 1, Duration: 20 * time.Millisecond}.withDefaults()
	rig, err := newRig(t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := newLoad(rig.semel.addr(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, c := range l.clients {
		c.start = strings.Replace(c.start, "Idempotency-Key", "Other", 1)
	}
	l.turn(t.Context(), opts.Duration)
	s := l.side()
	if s.Errors == 0 || !strings.Contains(s.FirstError, "400") || s.fault("semel") == nil {
		t.Errorf("side %+v", s)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	err := Options{Duration: -1, Connections: -1, Rounds: -1, BodyBytes: 1, AnswerBytes: 1}.Validate()
	for _, want := range []string{"--duration", "--connections", "--rounds", "--body-bytes", "--answer-bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, rerr := Run(t.Context(), Options{Rounds: -1}); rerr == nil {
		t.Error("Run took options that are wrong")
	}
}

func TestMedian(t *testing.T) {
	for want, rounds := range map[float64][]Round{
		0: nil,
		2: {{Bare: 1, Ratio: 3}, {Bare: 1, Ratio: 2}, {Bare: 0, Ratio: 9}, {Bare: 1, Ratio: 1}},
		3: {{Bare: 1, Ratio: 4}, {Bare: 1, Ratio: 2}},
	} {
		if got := median(rounds); got != want {
			t.Errorf("median of %v is %v, want %v", rounds, got, want)
		}
	}
}
