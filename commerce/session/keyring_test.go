package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestKeysRotate(t *testing.T) {
	clause.Proves(t, "MAP-SESS.5")
	st := memstore.New()
	var c tokens
	old := login(t, node(t, st, session.Options{Keys: keyring(t, "a")}), c.login(phone))
	both := node(t, st, session.Options{Keys: keyring(t, "b", "a")})
	same(t, login(t, both, c.login(phone)), old)
	fresh := login(t, both, c.login(laptop))

	dropped := node(t, st, session.Options{Keys: keyring(t, "b")})
	same(t, login(t, dropped, c.login(laptop)), fresh)
	if _, err := dropped.Login(t.Context(), c.login(phone)); !errors.Is(err, session.ErrSealed) {
		t.Errorf("without its key: %v", err)
	}
	must(t, dropped.End(t.Context(), old, "admin", "the key is gone"))
	another(t, login(t, dropped, c.login(phone)), old)
}

// swapped is a store that somebody else has written to.
type swapped struct {
	*memstore.Store
	data map[string]string // by device
}

func (s *swapped) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	rec, err := s.Store.Get(ctx, id)
	if data, ok := s.data[id.Key]; ok && err == nil {
		other := *rec
		other.Result.Data = []byte(data)
		return &other, nil
	}
	return rec, err
}

func (s *swapped) Extras() store.Extras { return s.Store.Extras() }

func TestATokenIsBoundToItsSession(t *testing.T) {
	st := &swapped{Store: memstore.New(), data: map[string]string{}}
	m := node(t, st, session.Options{Keys: keyring(t, "a")})
	var c tokens
	login(t, m, c.login(laptop))
	login(t, m, c.login(phone))
	rec, err := st.Get(t.Context(), semel.ID{Tenant: "shop", Principal: "u1", Operation: "commerce.session", Key: "session:u1:laptop"})
	must(t, err)
	other := string(rec.Result.Data)
	weak, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{Algorithm: jose.DIRECT, Key: []byte(strings.Repeat("a", 32)), KeyID: "a"}, nil)
	must(t, err)
	jwe, err := weak.Encrypt([]byte("forged"))
	must(t, err)
	direct, err := jwe.CompactSerialize()
	must(t, err)
	for name, data := range map[string]string{
		"of another session": other, "of another algorithm": direct, "cut off": other[:len(other)-1], "nothing": "", "no JWE": "token",
	} {
		st.data["session:u1:phone"] = data
		if s, err := m.Find(t.Context(), phone); !errors.Is(err, session.ErrSealed) || s.Token != nil {
			t.Errorf("a token %s: %+v, %v", name, s, err)
		}
	}
}

func TestKeyrings(t *testing.T) {
	good := []byte(strings.Repeat("a", 32))
	for name, keys := range map[string][]session.Key{
		"of nothing":       nil,
		"without a name":   {{"", good}},
		"of short keys":    {{"a", good[1:]}},
		"of equal names":   {{"a", good}, {"a", good}},
		"of endless names": {{strings.Repeat("a", 257), good}},
	} {
		if _, err := session.NewKeyring(keys...); err == nil {
			t.Errorf("a keyring %s", name)
		}
	}
}
