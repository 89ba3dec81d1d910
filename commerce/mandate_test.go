package commerce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

var (
	alice = commerce.Buyer{Tenant: "acme", User: "alice"}
	cart  = commerce.Cart{Currency: "USD", Lines: []commerce.Line{{"shirt-m", 2, "19.90"}, {"mug", 1, "7.50"}}}
)

// in runs a test in a bubble of time, with an engine on a store of its own.
func in(t *testing.T, test func(t *testing.T, engine *semel.Engine, m *commerce.Mandates)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		engine, err := semel.New(st, nil)
		if err != nil {
			t.Fatal(err)
		}
		mandates, err := commerce.NewMandates(engine, commerce.MandateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, engine, mandates)
		if err := errors.Join(engine.Close(context.Background()), st.Close()); err != nil {
			t.Error(err)
		}
	})
}

// pass lets the time of a bubble pass.
func pass(d time.Duration) { <-time.After(d) }

// made is the mandate of a cart.
func made(t *testing.T, m *commerce.Mandates, b commerce.Buyer, session string, c commerce.Cart) commerce.Mandate {
	t.Helper()
	got, err := m.Cart(t.Context(), b, session, c, func(_ context.Context, m commerce.Mandate) ([]byte, error) { return []byte("signed " + m.ID), nil })
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Data) != "signed "+got.ID {
		t.Errorf("%s has %s", got.ID, got.Data)
	}
	return got
}

func TestCartMandate(t *testing.T) {
	clause.Proves(t, "MAP-CART.1")
	in(t, func(t *testing.T, _ *semel.Engine, m *commerce.Mandates) {
		first := made(t, m, alice, "s1", cart)
		turned := commerce.Cart{Currency: "USD", Lines: []commerce.Line{cart.Lines[1], cart.Lines[0]}}
		if again := made(t, m, alice, "s1", turned); again.ID != first.ID || again.ExpiresAt != first.ExpiresAt {
			t.Errorf("the same cart has two mandates: %+v, %+v", first, again)
		}
		for what, other := range map[string]commerce.Mandate{
			"session":  made(t, m, alice, "s2", cart),
			"currency": made(t, m, alice, "s1", commerce.Cart{Currency: "EUR", Lines: cart.Lines}),
			"quantity": made(t, m, alice, "s1", commerce.Cart{Currency: "USD", Lines: []commerce.Line{{"shirt-m", 1, "19.90"}, {"mug", 2, "7.50"}}}),
			"price":    made(t, m, alice, "s1", commerce.Cart{Currency: "USD", Lines: []commerce.Line{{"shirt-m", 2, "7.50"}, {"mug", 1, "19.90"}}}),
		} {
			if other.ID == first.ID {
				t.Errorf("another %s has the same mandate", what)
			}
		}
		for _, other := range []commerce.Buyer{{"acme", "bob"}, {"other", "alice"}} {
			if _, err := m.Find(t.Context(), other, first.ID); !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("the mandate is that of %v, too: %v", other, err)
			}
		}
	})
}

// TestMandatesAtOnce: of any number of calls one makes the mandate.
func TestMandatesAtOnce(t *testing.T) {
	clause.Proves(t, "MAP-CART.1", "MAP-CART.3")
	in(t, func(t *testing.T, _ *semel.Engine, m *commerce.Mandates) {
		var runs atomic.Int64
		slow := func(_ context.Context, m commerce.Mandate) ([]byte, error) {
			runs.Add(1)
			<-time.After(time.Second)
			return []byte(m.ID), nil
		}
		var mu sync.Mutex
		ids := map[string]bool{}
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				c, err := m.Cart(t.Context(), alice, "s1", cart, slow)
				i, err2 := m.Intent(t.Context(), alice, []byte(`{"buy":"shoes"}`), slow)
				if err != nil || err2 != nil {
					t.Error(err, err2)
				}
				mu.Lock()
				ids[c.ID], ids[i.ID] = true, true
				mu.Unlock()
			})
		}
		if group.Wait(); len(ids) != 2 || runs.Load() != 2 {
			t.Errorf("%d mandates, made %d times", len(ids), runs.Load())
		}
	})
}

// TestCartMandatesExpire: after 30 minutes by the store's clock a mandate is no more, whether
// its record was purged or not, and the same cart makes another one.
func TestCartMandatesExpire(t *testing.T) {
	clause.Proves(t, "MAP-CART.2", "MAP-CART.4")
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		first := made(t, m, alice, "s1", cart)
		if d := time.Until(first.ExpiresAt); d != 30*time.Minute {
			t.Errorf("it expires after %v", d)
		}
		pass(30*time.Minute - time.Millisecond)
		if got, err := m.Find(t.Context(), alice, first.ID); err != nil || got.ID != first.ID || got.Session != "s1" || string(got.Data) != string(first.Data) {
			t.Errorf("before its end: %+v, %v", got, err)
		}
		pass(time.Millisecond)
		gone := func(when string) {
			t.Helper()
			if _, err := m.Find(t.Context(), alice, first.ID); !errors.Is(err, commerce.ErrMandateExpired) {
				t.Errorf("%s: %v", when, err)
			}
		}
		gone("at its end")
		next := made(t, m, alice, "s1", cart)
		if next.ID == first.ID {
			t.Error("the same cart has the expired mandate again")
		}
		gone("with a new one of the same cart")
		pass(time.Hour)
		if swept, err := engine.Sweep(t.Context()); err != nil || swept.Purged != 1 {
			t.Fatalf("%+v, %v", swept, err)
		}
		gone("after its purge")
	})
}

func TestIntentMandate(t *testing.T) {
	clause.Proves(t, "MAP-CART.3")
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		intent := func(b commerce.Buyer, text string) string {
			got, err := m.Intent(t.Context(), b, []byte(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			if found, err := m.Find(t.Context(), b, got.ID); err != nil || found.ID != got.ID || found.Session != "" {
				t.Errorf("%+v, %v", found, err)
			}
			return got.ID
		}
		first := intent(alice, `{"buy":"red shoes","max":{"amount":100.0,"currency":"USD"}}`)
		if same := intent(alice, `{ "max": {"currency":"USD", "amount":1e2}, "buy":"red shoes" }`); same != first {
			t.Error("an identical intent has another mandate")
		}
		// The record is under the key that the map writes down: of the user, and of the intent.
		for _, b := range []commerce.Buyer{alice, {Tenant: "acme", User: "bob"}} {
			got, err := m.Intent(t.Context(), b, []byte(`{"buy":"a hat"}`), nil)
			if err != nil {
				t.Fatal(err)
			}
			key, err := commerce.IntentMandate.Key(commerce.Values{"user_id": b.User, "intent_hash": got.Hash})
			if err != nil {
				t.Fatal(err)
			}
			call := semel.Call{Tenant: b.Tenant, Principal: b.User, Operation: "commerce.intent_mandate"}
			key.Name(&call)
			if _, err := engine.Lookup(t.Context(), call.ID(semel.SharePrincipal)); err != nil {
				t.Errorf("nothing is under the key of %s: %v", b.User, err)
			}
		}
		if other := intent(alice, `{"buy":"red shoes","max":{"amount":101,"currency":"USD"}}`); other == first {
			t.Error("another intent has the same mandate")
		}
		if _, err := m.Find(t.Context(), commerce.Buyer{Tenant: "acme", User: "bob"}, first); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("another user finds it: %v", err)
		}
		for _, text := range []string{``, `{`, `{"a":1,"a":2}`, "\"\xff\"", `"` + strings.Repeat("x", commerce.MaxIntent) + `"`} {
			if _, err := m.Intent(t.Context(), alice, []byte(text), nil); err == nil {
				t.Errorf("%.20q is accepted", text)
			}
		}
	})
}

// TestMandateIsMadeAgain: a failure or a crash while a mandate is made leaves none, and the
// next call makes it.
func TestMandateIsMadeAgain(t *testing.T) {
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		_, err := m.Cart(t.Context(), alice, "s1", cart, func(context.Context, commerce.Mandate) ([]byte, error) { return nil, errors.New("no key") })
		if !errors.Is(err, &semel.Error{Code: semel.CodeAborted}) {
			t.Errorf("a failure: %v", err)
		}
		var first string
		func() {
			defer func() { _ = recover() }()
			_, _ = m.Cart(t.Context(), alice, "s1", cart, func(_ context.Context, m commerce.Mandate) ([]byte, error) {
				first = m.ID
				panic("crash")
			})
		}()
		if _, err := m.Find(t.Context(), alice, first); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("a mandate that nobody got: %v", err)
		}
		if got := made(t, m, alice, "s1", cart); got.ID != first {
			t.Errorf("it is made as %s and %s", first, got.ID)
		}
		if _, err := commerce.NewMandates(engine, commerce.MandateOptions{Cart: "carts", Intent: "intents", Lease: time.Second}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"carts", "intents"} {
			if op, _ := engine.Internal().Operation(name); op.Lease != time.Second {
				t.Errorf("a mandate of a node that died waits for %v", op.Lease)
			}
		}
	})
}

func TestFindRefuses(t *testing.T) {
	in(t, func(t *testing.T, _ *semel.Engine, m *commerce.Mandates) {
		good := made(t, m, alice, "a session: with.dots%", cart)
		if _, err := m.Find(t.Context(), alice, good.ID); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"", "x", "..", good.ID + " ", strings.ToUpper(good.ID), "+" + good.ID, "0" + good.ID, good.ID + "%zz", strings.Repeat("a", 5000) + good.ID} {
			if got, err := m.Find(t.Context(), alice, id); !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("%.90q: %+v, %v", id, got, err)
			}
		}
		for _, b := range []commerce.Buyer{{}, {Tenant: "acme"}, {User: "alice"}, {"acme", "bob"}, {"acme", strings.Repeat("u", 5000)}} {
			if _, err := m.Find(t.Context(), b, good.ID); !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("%.90q: %v", fmt.Sprint(b), err)
			}
		}
		if _, err := m.Cart(t.Context(), commerce.Buyer{Tenant: "acme"}, "s1", cart, nil); err == nil {
			t.Error("a mandate of nobody is made")
		}
		if _, err := m.Cart(t.Context(), alice, "", cart, nil); err == nil {
			t.Error("a mandate of no session is made")
		}
	})
}

func TestParseCart(t *testing.T) {
	const exact = "123456789012345678.123456789"
	got, err := commerce.ParseCart([]byte(`{"lines":[{"price":` + exact + `,"variant":9007199254740993,"quantity":9007199254740993,"currency":"JPY"},{"variant":"B","quantity":1,"price":"10.00"}]}`))
	if want := fmt.Sprint(commerce.Cart{"JPY", []commerce.Line{{"9007199254740993", 9007199254740993, exact}, {"B", 1, "10.00"}}}); err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	if _, err := got.Hash(); err != nil {
		t.Error(err)
	}
	line := `{"variant":"A","quantity":1,"price":"1"}`
	bounded := `{"currency":"USD","lines":[` + strings.Repeat(line+",", commerce.MaxLines-1) + line + `]}`
	if c, err := commerce.ParseCart([]byte(bounded)); err != nil || len(c.Lines) != commerce.MaxLines {
		t.Errorf("%d lines: %v", len(c.Lines), err)
	}
	for text, want := range map[string]string{
		strings.Replace(bounded, line, line+","+line, 1):  "more than 10000 lines",
		strings.Repeat(" ", commerce.MaxCart+1):           "more than 4194304 bytes",
		`[]`:                                              "isn't a JSON object",
		`null`:                                            "isn't a JSON object",
		`{"currency":"USD"}`:                              "the lines aren't a list",
		`{"currency":"USD","lines":[]}`:                   "the cart is empty",
		`{"currency":"USD","Lines":[` + line + `]}`:       `the member "Lines"`,
		`{"currency":"USD","lines":[1]}`:                  "line 1: it isn't an object",
		`{"lines":[` + line + `]}`:                        `the currency ""`,
		`{"currency":"usd","lines":[` + line + `]}`:       `the currency "usd"`,
		`{"currency":5,"lines":[` + line + `]}`:           "isn't a string",
		`{"currency":"USD","lines":[` + line + `],"x":1}`: `the member "x"`,
		`{"currency":"USD","currency":"USD","lines":[]}`:  "duplicate member",
		`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":"1","currency":"USD"},{"variant":"B","quantity":1,"price":"1","currency":"EUR"}]}`: `line 2: its currency is "EUR"`,
		`{"lines":[{"variant":"A","quantity":1,"price":"1","currency":"USD"},{"variant":"B","quantity":1,"price":"1","currency":"EUR"}]}`:                  `line 2: its currency is "EUR"`,
		`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":"1 EUR"}]}`:                                                                        `the price "1 EUR"`,
		`{"currency":"USD","lines":[{"variant":"A","quantity":-1,"price":"1"}]}`:                                                                           "the quantity is -1",
		`{"currency":"USD","lines":[{"variant":"A","quantity":0,"price":"1"}]}`:                                                                            "the quantity is 0",
		`{"currency":"USD","lines":[{"variant":"A","quantity":1.5,"price":"1"}]}`:                                                                          "isn't a whole number",
		`{"currency":"USD","lines":[{"variant":"A","quantity":9223372036854775808,"price":"1"}]}`:                                                          "isn't a whole number",
		`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":-1}]}`:                                                                             `the price "-1"`,
		`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":"01"}]}`:                                                                           `the price "01"`,
		`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":1e300}]}`:                                                                          "the price",
		`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":"NaN"}]}`:                                                                          "the price",
		`{"currency":"USD","lines":[{"variant":"A","quantity":1}]}`:                                                                                        "the price",
		`{"currency":"USD","lines":[{"variant":"","quantity":1,"price":"1"}]}`:                                                                             "the variant",
		`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":"1","discount":"2"}]}`:                                                             `the member "discount"`,
		`{"currency":"USD","lines":[{"variant":["` + strings.Repeat("x", 1000) + `"],"quantity":1,"price":"1"}]}`:                                          "line 1: it isn't",
	} {
		c, err := commerce.ParseCart([]byte(text))
		if err == nil {
			_, err = c.Hash()
		}
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.120s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseCart(f *testing.F) {
	f.Add([]byte(`{"currency":"USD","lines":[{"variant":"A","quantity":1,"price":"1.50"},{"variant":7,"quantity":2,"price":3,"currency":"USD"}]}`))
	f.Add([]byte(`{"lines":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := commerce.ParseCart(text)
		if err != nil {
			return
		}
		one, err := c.Hash()
		for i, j := 0, len(c.Lines)-1; i < j; i, j = i+1, j-1 {
			c.Lines[i], c.Lines[j] = c.Lines[j], c.Lines[i]
		}
		if other, err2 := c.Hash(); one != other || (err == nil) != (err2 == nil) {
			t.Errorf("%s, %v; turned %s, %v", one, err, other, err2)
		}
	})
}
