package service_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// TestEveryDoorRemembers: remember is one setting, and the records of every door have it.
func TestEveryDoorRemembers(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer upstream.Close()
	dir := filepath.Join(t.TempDir(), "data")
	file, deliveries := everyDoor(t, "pebble:"+dir, upstream.URL)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"{name: charge", "{name: watched", "{name: functions", "{name: messages", "{name: tools", "{name: begun", "{path: /hooks", "[{actors_url: \"https://social.example/actors/{actor}\""} {
		if !strings.Contains(string(text), setting) {
			t.Fatalf("no %s in %s", setting, text)
		}
		text = []byte(strings.Replace(string(text), setting, setting+", remember: 90d", 1))
	}
	text = []byte(strings.Replace(string(text), "commands:\n", "commands:\n  remember: 90d\n", 1))
	s := start(t, write(t, string(text)))
	for _, d := range deliveries {
		do(t, "POST", s.data(d.path), d.body, d.header...) // whatever it answers, there is a record
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	st, err := pebblestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	page, err := st.Extras().Search.Search(t.Context(), store.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	remembered := map[string]bool{}
	for _, rec := range page.Records {
		remembered[rec.ID.Operation] = rec.Policy.Remember == 90*24*time.Hour && (rec.State != semel.Completed || rec.ExpiresAt == rec.EndedAt.Add(90*24*time.Hour))
	}
	for _, d := range deliveries {
		if (d.door != "whatsapp" && d.door != "proxy") && !remembered[d.operation] { // messages of WhatsApp are known as long as they may be repeated; a shadow records nothing
			t.Errorf("%s: the record of %s is not remembered: %v", d.door, d.operation, remembered)
		}
	}
}
