package api

import (
	"fmt"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/store/memstore"
)

// Who sees all tenants gets the figures of all, and anybody else those of their own tenant.
func TestFiguresAreOfWhoAsks(t *testing.T) {
	f := figures.New(memstore.New(), nil)
	w := newWorld(t, func(o *Options) { o.Figures = f })
	id := semel.ID{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "a"}
	for _, d := range []semel.Decision{semel.Execute, semel.Replay, semel.Replay, semel.Conflict} {
		f.Events().Decided(semel.Decided{ID: id, Door: "http", Decision: d})
	}
	f.Events().Decided(semel.Decided{ID: semel.ID{Tenant: "evil", Operation: "theirs", Key: "b"}, Door: "http", Decision: semel.Execute})
	for who, want := range map[string][2]string{"root": {"5", "charge"}, "viewer": {"4", "charge"}, "evilroot": {"1", "theirs"}} {
		for _, path := range []string{"/v1/figures", "/v1/nodes"} {
			g := w.send(who, "GET", path, "").want(200)
			if got := fmt.Sprint(g.Body["total"].(map[string]any)["deliveries"]); got != want[0] {
				t.Errorf("%s, %s: %s deliveries, want %s", who, path, got, want[0])
			}
			if operations, _ := g.Body["operations"].([]any); len(operations) > 0 && operations[0].(map[string]any)["operation"] != want[1] {
				t.Errorf("%s, %s: %v, want %s first", who, path, operations, want[1])
			}
		}
	}
	w.sendTo(w.admin.URL, "shop", "GET", "/v1/figures", "").want(403)
	w.sendTo(w.data.URL, "root", "GET", "/v1/figures", "").want(404)
	w.send("root", "GET", "/v1/figures?minutes=0", "").want(400)
	g := w.send("viewer", "GET", "/v1/figures?minutes=5", "").want(200)
	total := g.Body["total"].(map[string]any)
	if fmt.Sprint(total["deliveries"], " ", total["stopped_share"], " ", total["conflicts"]) != "4 0.6666666666666666 1" || len(g.Body["points"].([]any)) != 5 {
		t.Errorf("answered %s", g.Raw)
	}
	if repeated := g.Body["repeated"].([]any); repeated[0].(map[string]any)["record"] != id.Encode() {
		t.Errorf("repeated %v", repeated)
	}
}
