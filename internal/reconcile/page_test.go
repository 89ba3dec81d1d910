package reconcile_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/reconcile"
)

// TestThePage: docs/reconcile.md names every source, what it asks by, and when absence counts; and
// the source that it shows is one.
func TestThePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/reconcile.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range reconcile.Sources() {
		s, err := reconcile.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		_, row, found := strings.Cut(string(text), "\n| `"+name+"` |")
		row, _, _ = strings.Cut(row, "\n")
		cells := strings.Split(row, "|")
		if !found || len(cells) < 6 {
			t.Errorf("the page has no row for %s", name)
			continue
		}
		for _, v := range s.Values {
			if !strings.Contains(cells[1], "`"+v.Name+"`") {
				t.Errorf("%s: the page doesn't say that it asks by %s", name, v.Name)
			}
		}
		when, _, _ := strings.Cut(strings.TrimSpace(cells[5]), ",")
		if after, err := time.ParseDuration(when); err != nil && when != "never" || after != time.Duration(s.AbsentAfter) {
			t.Errorf("%s: absence counts after %s, and the page says %s", name, s.AbsentAfter, when)
		}
	}
	_, own, _ := strings.Cut(string(text), "```yaml\nname: ledger\n")
	own, _, _ = strings.Cut(own, "```")
	if _, err := reconcile.Load("ledger.yaml", []byte("name: ledger\n"+own)); err != nil {
		t.Error(err)
	}
}
