package enginetest

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

// A rate is for one record, or for one principal in one tenant and operation.
func TestRatesAreNotShared(t *testing.T) {
	clause.Proves(t, "IDS-XV.1", "IDS-XV.3")
	rate := semel.Rate{PerSecond: 0.001, Burst: 1}
	confirmed := confirming(semel.ConfirmationPolicy{})
	confirmed.Name = "confirmed"
	second := semel.Operation{Name: "second", PerPrincipal: rate, PerRecord: rate}
	for name, c := range map[string]struct {
		op     semel.Operation
		change func(c *semel.Call)
	}{
		"by principal, another tenant":    {semel.Operation{PerPrincipal: rate}, func(c *semel.Call) { c.Tenant = "other" }},
		"by principal, another principal": {semel.Operation{PerPrincipal: rate}, func(c *semel.Call) { c.Principal = "other" }},
		"by principal, another operation": {semel.Operation{PerPrincipal: rate}, func(c *semel.Call) { c.Operation = "second" }},
		"by record, another tenant":       {semel.Operation{PerRecord: rate}, func(c *semel.Call) { c.Tenant = "other" }},
		"by record, another principal":    {semel.Operation{PerRecord: rate}, func(c *semel.Call) { c.Principal = "other" }},
		"by record, another operation":    {semel.Operation{PerRecord: rate}, func(c *semel.Call) { c.Operation = "second" }},
		"by record, another key":          {semel.Operation{PerRecord: rate}, func(c *semel.Call) { c.Key = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, semel.Options{Operations: []semel.Operation{second}}, c.op, func(t *testing.T, r *rig) {
				mine, other := call("k"), call("k")
				c.change(&other)
				for _, c := range []semel.Call{mine, other} {
					must(t, begin(t, r.Engine, c).Complete(t.Context(), data("x")))
				}
				decides(t, r.Engine, mine, semel.Replay)
				decides(t, r.Engine, mine, semel.Throttled)
				decides(t, r.Engine, other, semel.Replay)
				decides(t, r.Engine, other, semel.Throttled)
			})
		})
	}
	t.Run("of confirmations, another tenant", func(t *testing.T) {
		inBubbleWith(t, semel.Options{Operations: []semel.Operation{confirmed}}, semel.Operation{}, func(t *testing.T, r *rig) {
			mine, other := call("k"), call("k")
			mine.Operation, other.Operation, other.Tenant = "confirmed", "confirmed", "other"
			for range 20 {
				ask(t, r.Engine, mine)
			}
			decides(t, r.Engine, mine, semel.Throttled)
			ask(t, r.Engine, other)
		})
	})
}
