package service_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
)

func TestSessionsOverHTTP(t *testing.T) {
	clause.Proves(t, "MAP-SVC.1", "MAP-SESS.1", "MAP-SESS.3", "MAP-SESS.5")
	s := openShop(t, "")
	tokens := s.atOnce(40, "POST", "/commerce/sessions", session1, "token")
	if len(tokens) != 1 || tokens["jwt-1"] != 40 || s.tokens != 1 {
		t.Fatalf("40 logins at once got %v, and %d tokens were made", tokens, s.tokens)
	}
	first := s.must(200, "POST", "/commerce/sessions", session1)
	if _, own := s.as("user_1", "POST", "/commerce/sessions", `{"device": "phone"}`); own["id"] != first["id"] {
		t.Errorf("the user's own login got %v, want the session %v", own, first["id"])
	}
	if other := s.must(201, "POST", "/commerce/sessions", `{"user": "user_1", "device": "tv"}`); other["id"] == first["id"] {
		t.Error("two devices share a session")
	}
	byID := "/commerce/sessions/" + url.PathEscape(first["id"].(string))
	t.Run("only the user, or who acts for them, sees it", func(t *testing.T) {
		if got := s.must(200, "GET", byID+"?user=user_1", ""); got["token"] != first["token"] {
			t.Error(got)
		}
		if list := s.must(200, "GET", "/commerce/sessions?user=user_1", "")["sessions"].([]any); len(list) != 2 || strings.Contains(fmt.Sprint(list), "jwt") {
			t.Error(list)
		}
		if status, got := s.as("user_2", "GET", byID, ""); status != 404 {
			t.Error(status, got)
		}
		if status, got := s.as("user_2", "GET", byID+"?user=user_1", ""); status != 403 || got["code"] != "forbidden" {
			t.Error(status, got)
		}
		if status, got := s.as("user_2", "POST", "/commerce/sessions", session1); status != 403 {
			t.Error(status, got)
		}
	})
	t.Run("it outlives the process and its key", func(t *testing.T) {
		s.again("[old.key]", "[new.key, old.key]")
		if again := s.must(200, "POST", "/commerce/sessions", session1); again["token"] != "jwt-1" || again["id"] != first["id"] {
			t.Error(again)
		}
		if kept := stored(t, s.dir); bytes.Contains(kept, []byte("jwt-1")) {
			t.Error("the store has the token in plain text")
		}
		s.again("[new.key, old.key]", "[new.key]")
		if status, got := s.as("shop", "POST", "/commerce/sessions", session1); status != 500 || !strings.Contains(fmt.Sprint(got["detail"]), "key") {
			t.Error("without its key:", status, got)
		}
		text, err := os.ReadFile(s.file)
		if err != nil {
			t.Fatal(err)
		}
		s.write("semel.yaml", strings.ReplaceAll(string(text), "[new.key]", "[new.key, old.key]"))
		if changed, err := s.Reload(); err != nil || !changed {
			t.Fatal(changed, err)
		}
		if again := s.must(200, "POST", "/commerce/sessions", session1); again["token"] != "jwt-1" {
			t.Error("after a reload:", again)
		}
	})
	t.Run("the next login after its end begins another", func(t *testing.T) {
		for range 2 {
			s.must(204, "DELETE", byID+"?user=user_1", "")
		}
		s.must(404, "GET", byID+"?user=user_1", "")
		next := s.must(201, "POST", "/commerce/sessions", session1)
		if next["id"] == first["id"] || next["token"] == first["token"] {
			t.Error(next)
		}
		s.must(404, "GET", byID+"?user=user_1", "")
		s.must(204, "DELETE", byID+"?user=user_1", "") // a late logout of the old one
		if got := s.must(200, "POST", "/commerce/sessions", session1); got["id"] != next["id"] {
			t.Error("the end of an old session has ended a newer one:", got)
		}
	})
}

// stored is everything that the embedded store has written.
func stored(t *testing.T, dir string) (all []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "data", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, _ := os.ReadFile(name)
		all = append(all, text...)
	}
	return all
}

func TestMandatesOverHTTP(t *testing.T) {
	clause.Proves(t, "MAP-SVC.1", "MAP-CART.2", "MAP-CART.4", "MAP-ORD.1")
	s := openShop(t, "")
	session := s.must(201, "POST", "/commerce/sessions", session1)["id"].(string)
	mandate := func(cart string) string {
		return fmt.Sprintf(`{"user": "user_1", "session": %q, "cart": %s, "data": {"signed": "by user_1"}}`, session, cart)
	}
	if ids := s.atOnce(20, "POST", "/commerce/mandates", mandate(cart1), "id"); len(ids) != 1 {
		t.Fatalf("20 requests at once made %v", ids)
	}
	m := s.must(200, "POST", "/commerce/mandates", mandate(cart1too))
	id := m["id"].(string)
	if fmt.Sprint(m["data"]) != "map[signed:by user_1]" || m["session"] != session {
		t.Error(m)
	}
	ends, err := time.Parse(time.RFC3339, m["expires_at"].(string))
	if left := time.Until(ends); err != nil || left < 29*time.Minute || left > 30*time.Minute {
		t.Errorf("it ends in %v, %v", left, err)
	}
	byID := "/commerce/mandates/" + url.PathEscape(id)
	order := func(id string) string { return fmt.Sprintf(`{"mandate": %q, "user": "user_1"}`, id) }
	t.Run("an order needs it, and is placed once, whoever sends it", func(t *testing.T) {
		if placed := s.atOnce(20, "POST", "/orders", order(id), "order"); placed["1"] == 0 || len(placed) > 2 {
			t.Errorf("20 at once got %v", placed)
		}
		for _, who := range []string{"shop", "user_1"} {
			if status, got := s.as(who, "POST", "/orders", order(id)); status != 201 || fmt.Sprint(got["order"]) != "1" {
				t.Error(who, status, got)
			}
		}
		if status, got := s.as("user_2", "POST", "/orders", order("x")); status != 409 || got["code"] != "mandate_expired" {
			t.Error(status, got)
		}
		if status, got := s.as("shop", "POST", "/orders", `{"user": "user_1", "mandate": "none"}`); status != 409 || got["code"] != "mandate_expired" {
			t.Error(status, got)
		}
		if s.orders != 1 {
			t.Errorf("%d orders", s.orders)
		}
	})
	t.Run("one that was ended pays and orders nothing, and the cart gets another", func(t *testing.T) {
		other := s.must(201, "POST", "/commerce/mandates", mandate(strings.Replace(cart1, "19.90", "18.90", 1)))["id"].(string)
		byID := "/commerce/mandates/" + url.PathEscape(other) + "?user=user_1"
		for range 2 {
			s.must(204, "DELETE", byID, "")
		}
		s.must(404, "GET", byID, "")
		s.refusesMandate(other)
		next := s.must(201, "POST", "/commerce/mandates", mandate(strings.Replace(cart1, "19.90", "18.90", 1)))["id"].(string)
		if next == other {
			t.Error("the cart got the mandate that was ended")
		}
		if got := s.must(201, "POST", "/orders", order(next)); fmt.Sprint(got["order"]) != "2" {
			t.Error(got)
		}
	})
	t.Run("nor does one that has expired, also after a restart; its order is repeated", func(t *testing.T) {
		s.again("origin: shop", "origin: shop\n  cart_lifetime: 1s")
		late := s.must(201, "POST", "/commerce/mandates", mandate(strings.Replace(cart1, "19.90", "17.90", 1)))["id"].(string)
		byID := "/commerce/mandates/" + url.PathEscape(late) + "?user=user_1"
		for status := 200; status != 409; {
			var got map[string]any
			if status, got = s.as("shop", "GET", byID, ""); status != 200 && (status != 409 || got["code"] != "mandate_expired") {
				t.Fatal(status, got)
			}
		}
		s.refusesMandate(late)
		if got := s.must(201, "POST", "/orders", order(id)); fmt.Sprint(got["order"]) != "1" {
			t.Error(got)
		}
	})
	t.Run("a command needs it, too", func(t *testing.T) {
		command := func(target, mandate string) (int, map[string]any) {
			return s.as("user_1", "POST", "/v1/commands", fmt.Sprintf(`{"tenant_id": "acme", "actor_id": "user_1", "intent": {"entity": "order", "action": "place", "target": %q}, "args": {"mandate": %q}}`, target, mandate))
		}
		valid := s.must(201, "POST", "/commerce/mandates", `{"user": "user_1", "intent": {"buy": "a hat"}}`)["id"].(string)
		others := s.must(201, "POST", "/commerce/mandates", `{"user": "user_2", "intent": {"buy": "a hat"}}`)["id"].(string)
		s.mu.Lock()
		orders := s.orders
		s.mu.Unlock()
		for range 2 {
			for _, bad := range []string{others, "none", ""} {
				if status, got := command("cart-"+bad, bad); status != 422 || got["reason"] != "mandate_expired" {
					t.Error(bad, status, got)
				}
			}
			if status, got := command("cart-1", valid); status != 200 {
				t.Error(status, got)
			}
		}
		s.must(204, "DELETE", "/commerce/mandates/"+url.PathEscape(valid)+"?user=user_1", "")
		if status, got := command("cart-1", valid); status != 200 {
			t.Error("one that ran isn't repeated:", status, got)
		}
		if status, got := command("cart-2", valid); status != 422 || got["reason"] != "mandate_expired" {
			t.Error(status, got)
		}
		if s.orders != orders+1 {
			t.Errorf("%d orders, want %d", s.orders, orders+1)
		}
	})
	t.Run("nobody else sees it", func(t *testing.T) {
		if status, got := s.as("user_2", "GET", byID, ""); status == 200 {
			t.Error(got)
		}
		if status, got := s.as("user_2", "POST", "/commerce/mandates", mandate(cart1)); status != 403 {
			t.Error(status, got)
		}
	})
}

// refusesMandate checks that a mandate can be neither ordered nor paid, however often.
func (s *shop) refusesMandate(id string) {
	s.t.Helper()
	s.mu.Lock()
	orders, charged := s.orders, len(s.charged)
	s.mu.Unlock()
	for range 2 {
		got := s.must(409, "POST", "/orders", fmt.Sprintf(`{"mandate": %q, "user": "user_1"}`, id))
		if got["code"] != "mandate_expired" {
			s.t.Error(got)
		}
		got = s.must(409, "POST", "/commerce/payments", fmt.Sprintf(`{"user": "user_1", "order": "late", "amount": 1, "currency": "USD", "intent_at": %d, "mandate": %q}`, time.Now().Unix(), id))
		if got["code"] != "mandate_expired" {
			s.t.Error(got)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orders != orders || len(s.charged) != charged {
		s.t.Errorf("%d orders and %d charges, want %d and %d", s.orders, len(s.charged), orders, charged)
	}
}

func TestPaymentsOverHTTP(t *testing.T) {
	clause.Proves(t, "MAP-SVC.1", "MAP-PAY.2")
	s := openShop(t, "")
	at := time.Now().Unix()
	pay := func(order string, amount int) string {
		return fmt.Sprintf(`{"user": "user_1", "order": %q, "amount": %d, "currency": "USD", "intent_at": %d}`, order, amount, at)
	}
	got := s.must(201, "POST", "/commerce/payments", pay("o1", 2999))
	reference := fmt.Sprintf("payment:o1:2999:USD:%d", at)
	if got["id"] != reference || got["transaction_id"] != "pi_o1" || got["state"] != "charged" {
		t.Fatal(got)
	}
	if all := s.atOnce(20, "POST", "/commerce/payments", pay("o1", 2999), "transaction_id"); all["pi_o1"] != 20 || s.charges(reference) != 1 {
		t.Errorf("%v, charged %d", all, s.charges(reference))
	}
	s.again()
	if got := s.must(200, "POST", "/commerce/payments", pay("o1", 2999)); got["transaction_id"] != "pi_o1" || s.charges(reference) != 1 {
		t.Errorf("after a restart: %v, charged %d", got, s.charges(reference))
	}
	t.Run("a declined card is declined for all", func(t *testing.T) {
		s.refuse.Store(402)
		first := s.must(422, "POST", "/commerce/payments", pay("o2", 100))
		s.refuse.Store(0)
		if again := s.must(422, "POST", "/commerce/payments", pay("o2", 100)); first["code"] != "rejected" || again["detail"] != first["detail"] || !strings.Contains(fmt.Sprint(first["detail"]), "402: The card has no funds. (no_funds)") {
			t.Error(first, again)
		}
	})
	t.Run("a 403 proves nothing where money moves", func(t *testing.T) {
		s.refuse.Store(403)
		defer s.refuse.Store(0)
		if got := s.must(409, "POST", "/commerce/payments", pay("o4", 100)); got["code"] != "held" {
			t.Error(got)
		}
	})
	t.Run("a lost answer holds it, until it is reconciled", func(t *testing.T) {
		s.lose.Store(true)
		if got := s.must(409, "POST", "/commerce/payments", pay("o3", 500)); got["code"] != "held" {
			t.Error(got)
		}
		s.lose.Store(false)
		id := fmt.Sprintf("payment:o3:500:USD:%d", at)
		byID := "/commerce/payments/" + id
		if got := s.must(409, "POST", "/commerce/payments", pay("o3", 500)); got["code"] != "held" || s.charges(id) != 1 {
			t.Error(got, s.charges(id))
		}
		if got := s.must(200, "GET", byID, ""); got["state"] != "held" || got["user"] != "user_1" {
			t.Error(got)
		}
		if status, got := s.as("user_1", "POST", byID+"/reconcile", `{"transaction_id": "pi_made_up"}`); status != 403 {
			t.Error("a user settles their own payment:", status, got)
		}
		for range 2 {
			if got := s.must(200, "POST", byID+"/reconcile", `{"transaction_id": "pi_9"}`); got["state"] != "charged" || got["transaction_id"] != "pi_9" {
				t.Error(got)
			}
		}
		if got := s.must(409, "POST", byID+"/reconcile", `{"transaction_id": "pi_10"}`); got["code"] != "already_ended" {
			t.Error(got)
		}
		if got := s.must(200, "POST", "/commerce/payments", pay("o3", 500)); got["transaction_id"] != "pi_9" || s.charges(id) != 1 {
			t.Error(got, s.charges(id))
		}
		if status, got := s.as("user_2", "GET", byID, ""); status != 404 {
			t.Error(status, got)
		}
		s.must(404, "POST", "/commerce/payments/payment:none:1:USD:1/reconcile", `{"refused": true}`)
	})
	t.Run("the gateway is asked", func(t *testing.T) {
		s.lose.Store(true)
		s.must(409, "POST", "/commerce/payments", pay("o6", 600))
		s.lose.Store(false)
		id := fmt.Sprintf("payment:o6:600:USD:%d", at)
		s.eventually("settled", func() bool { return s.must(200, "GET", "/commerce/payments/"+id, "")["state"] == "charged" })
		if got := s.must(200, "POST", "/commerce/payments", pay("o6", 600)); got["transaction_id"] != "pi_o6" || s.charges(id) != 1 {
			t.Error(got, s.charges(id))
		}
	})
	t.Run("a webhook that comes before any answer settles it, and it is one record", func(t *testing.T) {
		s.lose.Store(true)
		s.must(409, "POST", "/commerce/payments", pay("o5", 700))
		s.lose.Store(false)
		id := fmt.Sprintf("payment:o5:700:USD:%d", at)
		for range 2 {
			s.gateway(200, "evt_1", "pi_o5", id)
		}
		s.eventually("settled", func() bool { return s.hooks == 1 })
		if got := s.must(200, "GET", "/commerce/payments/"+id, ""); got["state"] != "charged" || got["transaction_id"] != "pi_o5" {
			t.Error(got)
		}
		if got := s.must(200, "POST", "/commerce/payments", pay("o5", 700)); got["transaction_id"] != "pi_o5" || s.charges(id) != 1 {
			t.Error(got, s.charges(id))
		}
		if got := s.must(200, "POST", "/commerce/payments/"+id+"/reconcile", `{"transaction_id": "pi_o5"}`); got["state"] != "charged" {
			t.Error(got)
		}
		// One that says otherwise changes nothing, and waits for somebody to look. The event behind
		// it has no reference: it is about a payment that nobody made here.
		s.gateway(200, "evt_2", "pi_other", id)
		s.gateway(200, "evt_3", "pi_elsewhere", "")
		s.eventually("passed on", func() bool { return s.hooks == 2 })
		if got := s.must(200, "GET", "/commerce/payments/"+id, ""); got["transaction_id"] != "pi_o5" {
			t.Error(got)
		}
	})
	t.Run("so does one of a payment that a route has charged", func(t *testing.T) {
		s.must(200, "POST", "/pay", pay("r1", 700))
		s.gateway(200, "evt_4", "pi_r1", fmt.Sprintf("payment:r1:700:USD:%d", at))
		s.lose.Store(true)
		if got := s.must(502, "POST", "/pay", pay("r2", 700)); got["code"] == nil {
			t.Error(got)
		}
		s.lose.Store(false)
		id := fmt.Sprintf("payment:r2:700:USD:%d", at)
		if got := s.must(200, "GET", "/commerce/payments/"+id, ""); got["state"] != "held" {
			t.Error(got)
		}
		for range 2 {
			s.gateway(200, "evt_5", "pi_r2", id)
		}
		s.eventually("settled", func() bool { return s.hooks == 4 })
		if got := s.must(200, "GET", "/commerce/payments/"+id, ""); got["state"] != "charged" || got["transaction_id"] != "pi_r2" || got["user"] != "user_1" {
			t.Error(got)
		}
		// Nobody knows what the upstream would have answered.
		if got := s.must(410, "POST", "/pay", pay("r2", 700)); got["code"] != "result_not_kept" || s.charges("r2") != 1 {
			t.Error(got, s.charges("r2"))
		}
		// One that charged nobody is charged by the next request.
		s.lose.Store(true)
		s.must(502, "POST", "/pay", pay("r3", 700))
		s.lose.Store(false)
		s.must(200, "POST", fmt.Sprintf("/commerce/payments/payment:r3:700:USD:%d/reconcile", at), `{"refused": true}`)
		if got := s.must(200, "POST", "/pay", pay("r3", 700)); got["transaction_id"] != "pi_r3" || s.charges("r3") != 2 {
			t.Error(got, s.charges("r3"))
		}
	})
	t.Run("another buyer's is a conflict", func(t *testing.T) {
		if status, got := s.as("user_2", "POST", "/commerce/payments", strings.Replace(pay("o1", 2999), `"user": "user_1", `, "", 1)); status != 422 || got["code"] != "conflict" {
			t.Error(status, got)
		}
	})
}

func TestEntitiesOverHTTP(t *testing.T) {
	clause.Proves(t, "MAP-SVC.1", "MAP-FLOW.5", "MAP-SYNC.1", "MAP-SYNC.2", "MAP-SYNC.3", "MAP-SYNC.4", "MAP-SYNC.5")
	s := openShop(t, "")
	const ann = "/commerce/entities/user/user_1"
	put := func(want int, path string, version int, content string) map[string]any {
		t.Helper()
		return s.must(want, "PUT", path, fmt.Sprintf(`{"version": %d, "content": %s}`, version, content))
	}
	receive := func(entity, id, origin string, version int, at time.Time, content string) any {
		t.Helper()
		return s.must(200, "POST", "/commerce/changes", fmt.Sprintf(`{"entity": %q, "id": %q, "version": %d, "time": %q, "origin": %q, "content": %s}`,
			entity, id, version, at.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano), origin, content))["outcome"]
	}
	t.Run("an edit names the version that it makes", func(t *testing.T) {
		put(200, ann, 1, `{"name": "Ann"}`)
		put(200, ann, 1, `{"name":"Ann"}`) // its answer was lost
		if got := put(409, ann, 1, `{"name": "Anna"}`); got["code"] != "version_differs" {
			t.Error(got)
		}
		put(409, ann, 3, `{"name": "Anna"}`)
		s.eventually("applied and sent", func() bool { return s.users["user/user_1"] == `{"name":"Ann"}` && len(s.sent) == 1 })
	})
	t.Run("the last write wins, and nothing comes back", func(t *testing.T) {
		state := s.must(200, "GET", ann, "")
		change := state["changes"].([]any)[0].(map[string]any)
		at, err := time.Parse(time.RFC3339Nano, change["time"].(string))
		if err != nil {
			t.Fatal(err)
		}
		if got := receive("user", "user_1", "shop", 1, at, `{"name": "Ann"}`); got != "echo" {
			t.Error(got)
		}
		if got := receive("user", "user_1", "shopify", 1, at.Add(-time.Hour), `{"name": "Old"}`); got != "superseded" {
			t.Error(got)
		}
		if got := receive("user", "user_1", "shopify", 2, at.Add(time.Millisecond), `{"name": "Anne"}`); got != "applied" {
			t.Error(got)
		}
		// One time and version: the origin that sorts last, on both sides.
		if got := receive("user", "user_1", "amazon", 2, at.Add(time.Millisecond), `{"name": "Bo"}`); got != "superseded" {
			t.Error(got)
		}
		if got := receive("user", "user_1", "shopify", 2, at.Add(time.Millisecond), `{"name": "Anne"}`); got != "duplicate" {
			t.Error(got)
		}
		s.eventually("applied", func() bool { return s.users["user/user_1"] == `{"name":"Anne"}` })
		if len(s.sent) != 1 {
			t.Errorf("sent %v", s.sent)
		}
	})
	t.Run("consents and products are append-only, also after a restart", func(t *testing.T) {
		for _, entity := range []string{"consent", "product"} {
			path := "/commerce/entities/" + entity + "/e1"
			put(200, path, 1, `{"v": "one"}`)
			put(200, path, 2, `{"v": "two"}`)
			put(409, path, 1, `{"v": "changed"}`)
			s.again()
			if got := s.must(200, "GET", path+"?version=1", ""); fmt.Sprint(got["content"]) != "map[v:one]" {
				t.Error(got)
			}
			if got := receive(entity, "e1", "shopify", 2, time.Now(), `{"v": "theirs"}`); got != "contested" {
				t.Error(got)
			}
			if got := s.must(200, "GET", path+"?version=2", ""); fmt.Sprint(got["content"]) != "map[v:two]" || got["contested"] != true {
				t.Error(got)
			}
		}
	})
	t.Run("a state and the message about it are one write, and outlive the process", func(t *testing.T) {
		s.down.Store(true)
		put(200, "/commerce/entities/user/user_2", 1, `{"name": "Bob"}`)
		s.again()
		put(200, "/commerce/entities/user/user_2", 1, `{"name": "Bob"}`)
		s.down.Store(false)
		s.eventually("applied after a restart", func() bool { return s.users["user/user_2"] == `{"name":"Bob"}` })
	})
	t.Run("users can't", func(t *testing.T) {
		if status, got := s.as("user_1", "PUT", ann, `{"version": 9, "content": {}}`); status != 403 {
			t.Error(status, got)
		}
	})
}

// TestNumberedUpdatesOverHTTP: an old change of a cart never overwrites a newer one, and each is
// saved once.
func TestNumberedUpdatesOverHTTP(t *testing.T) {
	clause.Proves(t, "MAP-SVC.1", "MAP-SESS.2")
	s := openShop(t, "")
	for _, c := range []struct {
		number, want int
		code         any
	}{{1, 200, nil}, {3, 200, nil}, {2, 409, "superseded"}, {1, 200, nil}, {3, 200, nil}} {
		body := fmt.Sprintf(`{"session": "s1", "number": %d, "content": %d}`, c.number, c.number)
		if status, got := s.as("user_1", "PUT", "/carts", body); status != c.want || got["code"] != c.code {
			t.Error(c.number, status, got)
		}
	}
	if got := strings.Join(s.saved, " "); got != "1 3" {
		t.Errorf("saved %s", got)
	}
}
