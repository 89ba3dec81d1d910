package session

import (
	"bytes"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// recorded is what the first version stored for the token of the session ses_1, with the key k1.
// Never change it: stores have such tokens.
const recorded = "eyJhbGciOiJBMjU2S1ciLCJlbmMiOiJBMjU2R0NNIiwia2lkIjoiazEiLCJzaWQiOiJzZXNfMSJ9.Wh4LURt6Z1H-_TUchqxy0selq5uhbIO2kRrmpmFpaVqvqwKy-g75qw.5Gy-6KHI2uh0AOr0.XZoJXfo.7h5D-tvZ3ALzETckY5fb-g"

func TestRecordedTokenOpens(t *testing.T) {
	clause.Proves(t, "MAP-SESS.5")
	key := func(id, of string) Key { return Key{ID: id, Secret: bytes.Repeat([]byte(of), 32)} }
	r, err := NewKeyring(key("k2", "n"), key("k1", "k"))
	if err != nil {
		t.Fatal(err)
	}
	if token, err := r.open(recorded, "ses_1"); err != nil || string(token) != "token" {
		t.Errorf("%q, %v", token, err)
	}
	if _, err := r.open(recorded, "ses_2"); err == nil {
		t.Error("another session has the token, too")
	}
}
