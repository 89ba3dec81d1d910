package a2a_test

import (
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/store"
)

// TestAMessageIsFoundByItsAttributes in both forms of the door and in every binding.
func TestAMessageIsFoundByItsAttributes(t *testing.T) {
	attributes := map[string]string{"order": "json:/metadata/order_id", "desk": "header:X-Desk", "coupon": "json:/metadata/coupon"}
	for name, make := range map[string]func(*testing.T) *world{
		"wrapped": func(t *testing.T) *world {
			return wrapped(t, once.Options{Operation: operation, Attributes: attributes})
		},
		"gateway": func(t *testing.T) *world {
			return behind(t, once.GatewayOptions{Operation: operation, Attributes: attributes})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := make(t)
			close(w.agent.release)
			for _, b := range all {
				path, raw := b.body("m-"+b.name, "", "pay", false)
				raw = strings.Replace(raw, `"role"`, `"metadata":{"order_id":"`+b.name+`"},"role"`, 1)
				w.post(path, raw, "X-Desk", "7")
				page, err := w.Engine.Search(t.Context(), store.Query{Attributes: store.Attributes{"order": b.name}})
				if err != nil || len(page.Records) != 1 || page.Records[0].ID.Key != "m-"+b.name || page.Records[0].Attributes["desk"] != "7" {
					t.Errorf("%s: %+v, %v", b.name, page.Records, err)
				}
			}
		})
	}
	w := wrapped(t, once.Options{Operation: operation})
	own := once.Options{Operation: operation, Attributes: map[string]string{"request_id": "json:/messageId"}}
	if _, err := once.Wrap(w.Engine, a2asrv.NewHandler(w.agent), own); err == nil || !strings.Contains(err.Error(), "attribute") {
		t.Errorf("an attribute in place of the door's own: %v", err)
	}
}
