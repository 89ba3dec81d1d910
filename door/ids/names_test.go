package ids_test

import (
	"testing"

	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/store"
)

// TestACommandIsFoundByItsAttributes, also where it came in a message: the message's own record
// has none of them, or an order would have two calls for one command.
func TestACommandIsFoundByItsAttributes(t *testing.T) {
	s := newShop(t, func(o *ids.Options) {
		o.Attributes = map[string]string{"order": "json:/order/id", "coupon": "json:/coupon"}
	})
	const args = `,"actor_id":"alice","args":{"order":{"id":9911},"reason":"late"}`
	s.want(s.command("alice", "order.cancel", args+`,"effective_actor_id":"alice"`), 200, ids.StatusExecuted, "order.cancel", 1)
	s.want(s.command("alice", "order.cancel", `,"actor_id":"alice","effective_actor_id":"alice","args":{"order":{"id":"9912"}},"trace":{"message_id":"wamid.A","phone_number_id":"770001"}`), 200, ids.StatusExecuted, "order.cancel", 2)
	for _, order := range []string{"9911", "9912"} {
		page, err := s.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{"order": order}})
		if err != nil || len(page.Records) != 1 || page.Records[0].ID.Operation != "order.cancel" || page.Records[0].Attributes["command_id"] == "" {
			t.Errorf("order %s: %+v, %v", order, page.Records, err)
		}
	}
}
