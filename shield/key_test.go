package shield_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/shield"
)

func TestKeysAsProvidersTakeThem(t *testing.T) {
	clause.Proves(t, "IDS-XI.S1")
	const key = "0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcde" // as long as those of effects
	short := shield.Provider{MaxKey: 32}
	for _, c := range []struct {
		p    shield.Provider
		want string
	}{
		{shield.Stripe(), key}, {shield.Adyen(), key}, {shield.ACP(), key}, {shield.IETF(), key}, {shield.Provider{}, key},
		{short, short.Key(key)}, {shield.UCP(), (&shield.Provider{UUID: true}).Key(key)},
	} {
		must(t, c.p.Validate())
		if got := c.p.Key(key); got != c.want || got != c.p.Key(key) || got == c.p.Key(key+"x") {
			t.Errorf("%s: %q, want %q", c.p.Name, got, c.want)
		}
	}
	if got := short.Key(key); len(got) != 32 || strings.Contains(key, got) {
		t.Errorf("the short key is %q", got)
	}
	ucp := shield.UCP()
	if got := ucp.Key(key); !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("the UUID is %q", got)
	}
	for _, bad := range []shield.Provider{{MaxKey: 21}, {MaxKey: -1}, {MaxKey: 32, UUID: true}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestTheKeyIsPutWhereItBelongs(t *testing.T) {
	clause.Proves(t, "IDS-XI.S1")
	for _, c := range []struct {
		name  string
		p     shield.Provider
		media string
		body  string
		want  string // of the body, with K for the key; empty: nothing may be sent
		head  string
	}{
		{"a header", shield.Stripe(), "text/plain", "x", "x", "K"},
		{"a quoted header", shield.IETF(), "text/plain", "x", "x", `"K"`},
		{"a member", shield.Provider{Field: "ref"}, "application/json; charset=utf-8", ` {"n":1.0}`, ` {"ref":"K","n":1.0}`, ""},
		{"the first member", shield.Provider{Field: "ref"}, "application/json", `{ }`, `{"ref":"K" }`, ""},
		{"a member that is there", shield.Provider{Field: "ref"}, "application/json", `{"ref":"x"}`, "", ""},
		{"no object", shield.Provider{Field: "ref"}, "application/json", `[1]`, "", ""},
		{"null", shield.Provider{Field: "ref"}, "application/json", `null`, "", ""},
		{"no JSON", shield.Provider{Field: "ref"}, "application/json", `{"a":`, "", ""},
		{"a form", shield.Provider{Field: "ref[x]"}, "application/x-www-form-urlencoded", "a=b", "a=b&ref%5Bx%5D=K", ""},
		{"an empty form", shield.Provider{Field: "ref"}, "application/x-www-form-urlencoded", "", "ref=K", ""},
		{"a form that has it", shield.Provider{Field: "ref"}, "application/x-www-form-urlencoded", "ref=1", "", ""},
		{"another type", shield.Provider{Field: "ref"}, "text/plain", "x", "", ""},
		{"no type", shield.Provider{Field: "ref"}, "", "x", "", ""},
		{"both", shield.Provider{Header: "Idempotency-Key", Field: "ref"}, "application/json", `{}`, `{"ref":"K"}`, "K"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProvider(t, status(201))
			e, _ := engine(t, nil)
			ans, err := e.Begin(t.Context(), payment)
			must(t, err)
			key := semel.EffectKey(ans.Record, "charge")
			ctx, err := shield.WithKey(t.Context(), ans.Attempt, "charge")
			must(t, err)
			client := &http.Client{Transport: shield.ProviderKey(c.p, nil)}
			resp, err := client.Do(post(t, p.URL, c.media, c.body).WithContext(ctx))
			if c.want == "" {
				if err == nil || !shield.NothingSent(err) || len(p.got()) != 0 {
					t.Fatalf("got %v, %d requests", err, len(p.got()))
				}
				return
			}
			must(t, err)
			_ = resp.Body.Close()
			if got := strings.ReplaceAll(p.bodies[0], key, "K"); got != c.want {
				t.Errorf("sent %s, want %s", got, c.want)
			}
			if got := strings.ReplaceAll(p.got()[0], key, "K"); got != c.head {
				t.Errorf("the header is %s, want %s", got, c.head)
			}
			if ans.Record.Effects != nil {
				t.Error("the ledger was written")
			}
		})
	}
}

func TestARequestWithoutItsKeyIsNotSent(t *testing.T) {
	clause.Proves(t, "IDS-XI.S1")
	p := newProvider(t, status(200))
	client := &http.Client{Transport: shield.ProviderKey(shield.Stripe(), http.DefaultTransport)}
	_, err := client.Do(post(t, p.URL, "text/plain", "x"))
	if err == nil || !shield.NothingSent(err) {
		t.Errorf("got %v", err)
	}
	r := post(t, p.URL, "text/plain", "x")
	r.Header.Set("Idempotency-Key", "mine")
	e, _ := engine(t, nil)
	ans, err := e.Begin(t.Context(), payment)
	must(t, err)
	ctx, err := shield.WithKey(t.Context(), ans.Attempt, "charge")
	must(t, err)
	if _, err = client.Do(r.WithContext(ctx)); err == nil || !shield.NothingSent(err) {
		t.Errorf("got %v", err)
	}
	if len(p.got()) != 0 {
		t.Errorf("%d requests", len(p.got()))
	}
	resp, err := client.Get(p.URL) // which changes nothing
	must(t, err)
	_ = resp.Body.Close()
	if shield.NothingSent(errors.New("x")) {
		t.Error("any error proves that nothing was sent")
	}
	_, err = shield.WithKey(t.Context(), remote{}, "charge")
	wantCode(t, err, semel.CodeUnsupported)
}

// remote is an execution whose holder is elsewhere.
type remote struct{ semel.Execution }

// The key is the same in all attempts of a call.
func TestTheKeyIsThatOfTheCall(t *testing.T) {
	clause.Proves(t, "IDS-XI.S1")
	e, _ := engine(t, nil)
	keys := map[string]bool{}
	for range 3 {
		_, err := e.Do(t.Context(), payment, func(_ context.Context, x semel.Execution) (semel.Result, error) {
			rec := x.(*semel.Attempt).Record()
			keys[semel.EffectKey(rec, "charge")] = true
			if semel.EffectKey(rec, "charge") == semel.EffectKey(rec, "mail") {
				t.Error("two effects have one key")
			}
			return semel.Result{}, errors.New("again")
		})
		wantCode(t, err, semel.CodeAborted)
	}
	if len(keys) != 1 {
		t.Errorf("the keys %v", keys)
	}
}
