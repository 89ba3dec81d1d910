package benchproxy

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// options are those of a run that is over soon.
func options(t *testing.T) Options {
	return Options{
		Duration: 50 * time.Millisecond, Connections: 4, Rounds: 1, BodyBytes: 256, AnswerBytes: 256, Dir: t.TempDir(),
		Progress: func(string, ...any) {},
	}
}

func TestRunComparesBothProxies(t *testing.T) {
	rounds := 0 // of the proxies, and one of the API
	o := options(t)
	o.Compare, o.Duration, o.Rounds = true, 200*time.Millisecond, 2
	o.Progress = func(string, ...any) { rounds++ }
	report, err := Run(t.Context(), o)
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
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

func TestRunWithoutAComparison(t *testing.T) {
	report, err := Run(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	if report.Semel.Requests == 0 || report.Bare != nil || report.Ratio != 0 || report.Rounds != nil {
		t.Errorf("report %+v", report)
	}
}

func TestEveryRequestThroughSemelIsRecorded(t *testing.T) {
	opts := options(t)
	rig, err := newRig(opts.Dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := newLoad(rig.semel.Addr(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	c := l.clients[0]
	if err := c.request(); err != nil {
		t.Fatal(err)
	}
	// The same key again.
	conn, err := net.Dial("tcp", rig.semel.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(strings.Replace(c.start, "-0-", "-0-1", 1) + c.end)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 4096)
	n, err := conn.Read(head)
	if err != nil || !strings.Contains(string(head[:n]), "Idempotency-Replayed: true") {
		t.Errorf("the duplicate got %q, %v", head[:n], err)
	}
}

func TestFailuresAreReported(t *testing.T) {
	opts := options(t)
	rig, err := newRig(opts.Dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := newLoad(rig.semel.Addr(), opts)
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
	if err := options(t).Validate(); err != nil {
		t.Error(err)
	}
	err := Options{}.Validate()
	for _, want := range []string{"--duration", "--connections", "--rounds", "--body-bytes", "--answer-bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
