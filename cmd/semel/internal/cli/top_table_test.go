package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/store"
)

// busy is what a service with so many operations tells.
func busy(t *testing.T, operations int) *topSnapshot {
	t.Helper()
	now := time.Date(2026, 11, 25, 20, 15, 30, 0, time.UTC)
	id := store.ID{Tenant: "acme", Principal: "shop", Operation: "payments.charge@2", Key: "order-7731"}.Encode()
	all := []any{
		map[string]any{"operation": "payments.charge@2", "deliveries": 900000, "stopped": 100000, "stopped_share": 0.1111, "simultaneous": 4000, "failed_attempts": 12},
		map[string]any{"operation": "orders.place", "deliveries": 300000, "stopped": 34000, "stopped_share": 0.1133, "simultaneous": 211},
		map[string]any{"operation": "mail.\x1b[31msend", "deliveries": 34567, "stopped": 567, "stopped_share": 0.0164},
	}
	for i := len(all); i < operations; i++ {
		all = append(all, map[string]any{"operation": fmt.Sprintf("other-%02d", i)})
	}
	text, err := json.Marshal(map[string]any{
		"to": now, "nodes": 3,
		"total":      map[string]any{"deliveries": 1234567, "executed": 1100000, "stopped": 134000, "stopped_share": 0.109, "conflicts": 567, "simultaneous": 4211, "failed_attempts": 12, "refused": 7},
		"operations": all,
		"series": []any{
			map[string]any{"what": "execute", "count": 1100000}, map[string]any{"what": "replay", "count": 130000}, map[string]any{"what": "replay", "count": 4000},
			map[string]any{"what": "conflict", "count": 567}, map[string]any{"what": "simultaneous", "count": 4211},
		},
		"points":   []any{map[string]any{"at": now.Add(-time.Minute), "deliveries": 40, "added_p50_seconds": 0.00042, "added_p99_seconds": 0.0131}, map[string]any{"at": now}},
		"repeated": []any{map[string]any{"record": id, "operation": "payments.charge@2", "repeats": 4100, "peak": 310, "last": now.Add(-4 * time.Second)}},
	})
	s := &topSnapshot{Figures: &admin.Figures{}, Attempts: &admin.Attempts{InFlight: 4, Held: 2, OldestInFlight: 2, OldestHeld: 3 * 3600}}
	s.checks = []admin.Check{{Mark: '+', Name: "serving"}, {Mark: '!', Name: "held", Detail: "2 calls wait for a decision, the oldest for 3h0m"}}
	if err == nil {
		err = json.Unmarshal(text, s.Figures)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTopTable(t *testing.T) {
	const want = `! held: 2 calls wait for a decision, the oldest for 3h0m
deliveries 1234567  stopped 134000 (10.9 %)  polls 0  conflicts 567  turned away 0  failed 12  refused 7
added p50 0.42 ms  p99 13.10 ms (20:14)  in flight 4 (oldest 2s)  held 2 (oldest 3h)  nodes 3

DECISION  DELIVERIES  SHARE
execute   1100000     89.1 %
replay    134000      10.9 %
conflict  567         0.0 %

OPERATION            STOPPED  SHARE   DELIVERIES  SIMULTANEOUS  FAILED
payments.charge@2    100000   11.1 %  900000      4000          12
orders.place         34000    11.3 %  300000      211           0
"mail.\x1b[31msend"  567      1.6 %   34567       0             0

REPEATED KEY  REPEATS  OPERATION          PEAK/MIN  LAST
order-7731    4100     payments.charge@2  310       4s ago
`
	table := topTable{}
	if got := table.text(busy(t, 3)); got != want {
		t.Errorf("got\n%s", got)
	}
	oneNode := admin.Figures{}
	oneNode.Nodes = 1
	if got := table.text(&topSnapshot{Figures: &oneNode}); !strings.Contains(got, "Nothing was delivered in this time.") || !strings.Contains(got, "not counted yet") {
		t.Errorf("a quiet service is\n%s", got)
	}
}

// Figures of one node aren't shown as those of all.
func TestTopWhileTheStoreIsAway(t *testing.T) {
	s, table := busy(t, 3), topTable{}
	if got := table.text(s); strings.Contains(got, "The store doesn't answer") || strings.Contains(got, "counted last") {
		t.Error(got)
	}
	s.Figures.Alone = true
	if got := table.text(s); !strings.Contains(got, "\nThe store doesn't answer: ") || !strings.Contains(got, "as counted last") {
		t.Error(got)
	}
}

// TestTopGoesOn: one table an interval, in its place on a terminal only; a service that goes
// away later is asked again.
func TestTopGoesOn(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var out strings.Builder
			asked := 0
			fetch := func() (*topSnapshot, error) {
				switch asked++; asked {
				case 3:
					return nil, errors.New("refused\x1b[31m")
				case 4:
					cancel()
				}
				return busy(t, 40), nil
			}
			began := time.Now()
			table := topTable{out: &out, title: "semel top", inPlace: inPlace}
			if err := table.watch(ctx, 5*time.Second, fetch); err != nil || time.Since(began) != 15*time.Second {
				t.Errorf("it ends after %v by %v", time.Since(began), err)
			}
			got := out.String()
			tables := strings.Split(got, "semel top\n")[1:]
			if len(tables) != 3 || !strings.HasPrefix(tables[1], "! held: 2 calls wait") || !strings.HasPrefix(tables[2], `No answer, asking again: "refused\x1b[31m". As it was 5s ago:`) {
				t.Fatalf("%d tables:\n%s", len(tables), got)
			}
			for _, one := range tables {
				if lines := strings.Count(one, "\n"); inPlace != (lines <= 24) || inPlace != strings.Contains(one, "and 35 more\n") {
					t.Errorf("a table of %d lines:\n%s", lines, one)
				}
			}
			if n := strings.Count(got, "\x1b"); inPlace != (n == 6) || !inPlace && n != 0 {
				t.Errorf("%d escapes", n)
			}
		})
	}
	broken := errors.New("refused")
	if err := (&topTable{}).watch(t.Context(), time.Second, func() (*topSnapshot, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("the first question ends by %v", err)
	}
}
