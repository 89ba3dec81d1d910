package benchproxy

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/bench/internal/benchstore"
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
	if rounds != 3 || len(report.Rounds) != 2 || report.Ratio <= 0 || report.RatioOfTotals <= 0 {
		t.Errorf("%d rounds, report %+v", rounds, report)
	}
	for _, m := range []*benchstore.Measure{report.Ours, report.Bare, report.API} {
		if m == nil || m.OpsPerSecond <= 0 || m.Latency.P50 <= 0 || m.Latency.Max < m.Latency.P99 || m.Errors != 0 {
			t.Errorf("measured %+v", m)
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
	if report.Ours == nil || report.API == nil || report.Bare != nil || report.Ratio != 0 || report.Rounds != nil {
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
	c := l[0]
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
	for _, c := range l {
		c.start = strings.Replace(c.start, "Idempotency-Key", "Other", 1)
	}
	got, err := benchstore.Alternate(t.Context(), opts.turns(opts.Duration, 1), "", l.request, nil)
	if err == nil || got.Ours.Errors == 0 || !strings.Contains(got.Ours.FirstError, "400") {
		t.Errorf("%+v, %v", got.Ours, err)
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
