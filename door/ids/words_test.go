package ids_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
)

// A record that is shown as the specification's has its words, as text, and all its fields
// from the reservation on.
func TestRecordsHaveTheWordsOfTheSpecification(t *testing.T) {
	clause.Proves(t, "IDS-VIII.2", "IDS-VIII.7")
	s := newShop(t)
	const by = `,"actor_id":"alice"`
	paid := s.command("alice", "card.pay", by)
	for url, want := range map[string]string{
		s.command("alice", "order.lose", by).StatusURL:   "in_progress",
		s.command("alice", "order.retry", by).StatusURL:  "failed",
		s.command("alice", "order.refuse", by).StatusURL: "rejected",
		paid.StatusURL: "executed",
	} {
		checkRecord(t, s, url, want)
	}
	s.send("alice cards:repay", "POST", paid.StatusURL+"/compensate", `{"reason":"by mistake"}`)
	checkRecord(t, s, paid.StatusURL, "compensated")
}

func checkRecord(t *testing.T, s *shop, url, want string) {
	t.Helper()
	var got struct {
		Status         string    `json:"status"`
		IdempotencyKey string    `json:"idempotency_key"`
		CommandID      string    `json:"command_id"`
		CreatedAt      time.Time `json:"created_at"`
		UpdatedAt      time.Time `json:"updated_at"`
		TTLExpiresAt   time.Time `json:"ttl_expires_at"`
	}
	w := s.send("alice", "GET", url, "")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err, w.Body)
	}
	if got.Status != want || got.IdempotencyKey == "" || got.CommandID == "" || got.CreatedAt.IsZero() || got.UpdatedAt.IsZero() || !got.TTLExpiresAt.After(got.CreatedAt) {
		t.Errorf("the record that is %s is shown as\n%s", want, w.Body)
	}
}
