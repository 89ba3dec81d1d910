package ids

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/internal/rig/clause"
)

func TestRules(t *testing.T) {
	clause.Proves(t, "IDS-VII.1")
	for _, c := range []struct {
		rule     Rule
		in, want any // want nil: refused
	}{
		{RuleTrim, "  a b\t\n", "a b"},
		{RuleTrim, json.Number("1"), json.Number("1")},
		{RuleCollapse, " a \n b ", "a b"},
		{RuleLower, "ÀB c", "àb c"},
		{RuleUpper, "àb", "ÀB"},
		{RuleUpper, true, true},
		{RuleDecimal, "0012.500", "12.5"},
		{RuleDecimal, "+1", "1"},
		{RuleDecimal, "-0.00", "0"},
		{RuleDecimal, "-0.50", "-0.5"},
		{RuleDecimal, "1e3", "1000"},
		{RuleDecimal, "12.5E-3", "0.0125"},
		{RuleDecimal, json.Number("1e+21"), "1000000000000000000000"},
		{RuleDecimal, json.Number("9007199254740993"), "9007199254740993"},
		{RuleDecimal, "1,5", nil},
		{RuleDecimal, "", nil},
		{RuleDecimal, ".5", nil},
		{RuleDecimal, "1e1001", nil},
		{RuleDecimal, "0x10", nil},
		{RuleDecimal, "１", nil},
		{RulePhone, "+55 (11) 98765-4321", "+5511987654321"},
		{RulePhone, "005511987654321", "+5511987654321"},
		{RulePhone, "+1.202.555.0123", "+12025550123"},
		{RulePhone, "11987654321", nil},
		{RulePhone, "+0511987654321", nil},
		{RulePhone, "+1234567890123456", nil},
		{RulePhone, "+55 call me", nil},
	} {
		t.Run(fmt.Sprintf("%s of %v", c.rule, c.in), func(t *testing.T) {
			got, ok := c.rule.apply(c.in)
			if ok != (c.want != nil) || ok && got != c.want {
				t.Errorf("got %v, %v, want %v", got, ok, c.want)
			}
		})
	}
}

func TestDecimalKeepsTheValue(t *testing.T) {
	clause.Proves(t, "IDS-VII.1")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[+-]?[0-9]{1,12}(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "text")
		got, ok := decimal(text)
		if !ok {
			t.Fatalf("%s is refused", text)
		}
		plain := got.(string)
		want, _ := new(big.Rat).SetString(text)
		have, ok := new(big.Rat).SetString(plain)
		if !ok || have.Cmp(want) != 0 {
			t.Fatalf("%s became %s", text, plain)
		}
		if again, ok := decimal(plain); !ok || again != plain {
			t.Fatalf("%s became %v when it was normalised again", plain, again)
		}
		if strings.ContainsAny(plain, "eE+") || strings.Contains(plain, ".") && strings.HasSuffix(plain, "0") {
			t.Fatalf("%s is not plain", plain)
		}
	})
}

func TestNormalisingTwiceChangesNothing(t *testing.T) {
	clause.Proves(t, "IDS-VII.1")
	reg := vectorRegistry(t)
	for _, v := range readVectors(t).Vectors {
		if !v.Registered || v.Error != "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			first, err := v.derive(t, reg)
			if err != nil {
				t.Fatal(err)
			}
			second, err := reg.Derive(first.Command)
			if err != nil || second.Key != first.Key {
				t.Errorf("%v\n%s\n%s", err, first.Canonical, second.Canonical)
			}
		})
	}
}

func TestHandlersGetWhatIsStripped(t *testing.T) {
	c, err := ParseCommand([]byte(with(`{"reason":" Late","client_timestamp":"noon","tags":["b","a"]}`)))
	if err != nil {
		t.Fatal(err)
	}
	d, err := vectorRegistry(t).Derive(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"client_timestamp":"noon","notify":true,"reason":" late","tags":["a","b"]}`; string(d.Command.Args) != strings.Replace(want, `" late"`, `"late"`, 1) {
		t.Errorf("args %s", d.Command.Args)
	}
	if string(c.Args) != `{"client_timestamp":"noon","reason":" Late","tags":["b","a"]}` {
		t.Errorf("the envelope was changed: %s", c.Args)
	}
}

func TestEphemeralNames(t *testing.T) {
	clause.Proves(t, "IDS-VII.4")
	for _, name := range []string{
		"timestamp", "Timestamp", "client_timestamp", "clientTimestamp", "now", "ts", "nonce", "random", "message_id", "messageId", "messageid",
		"wamid", "token", "accessToken", "csrf-token", "uuid", "UUID", "guid", "request_id", "requestID", "trace.id", "sent_at", "retry_count", "HTTPNonce", "attempt", "jti", "createdAt", "timestamp_ms",
	} {
		t.Run(name+" is ephemeral", func(t *testing.T) {
			if _, is := ephemeral(name); !is {
				t.Errorf("%q", wordsOf(name))
			}
		})
	}
	for _, name := range []string{
		"", "order_id", "order_uuid", "due_date", "start_time", "tokens", "token_type", "knowledge", "snow", "timestamp_zone", "amount", "message", "message_idea", "contents", "parts", "known", "entry", "paid_at",
	} {
		t.Run(name+" is not", func(t *testing.T) {
			if what, is := ephemeral(name); is {
				t.Errorf("it is %s", what)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct{ path, in, want string }{
		{"a", `{"a":1,"b":2}`, `{"b":2}`},
		{"a.b", `{"a":{"b":1,"c":2}}`, `{"a":{"c":2}}`},
		{"a[].b", `{"a":[{"b":1},{"c":2},3]}`, `{"a":[{},{"c":2},3]}`},
		{"a[]", `{"a":[1,2]}`, `{"a":[]}`},
		{"a[][].b", `{"a":[[{"b":1}],[]]}`, `{"a":[[{}],[]]}`},
		{"a.b", `{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`},
		{"a[]", `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"x.y.z", `{"a":1}`, `{"a":1}`},
	} {
		t.Run(fmt.Sprintf("%s taken out of %s", c.path, c.in), func(t *testing.T) {
			steps, ok := Path(c.path).steps()
			tree, err := argschema.Decode([]byte(c.in))
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if _, _, err := change(tree, steps, func(any, bool) (any, bool, error) { return nil, false, nil }); err != nil {
				t.Fatal(err)
			}
			want, _ := argschema.Decode([]byte(c.want))
			if !reflect.DeepEqual(tree, want) {
				t.Errorf("got %v, want %v", tree, want)
			}
		})
	}
	for _, path := range []string{"", ".", "a.", ".a", "a..b", "[]", "a[", "a]", "a[0]", "a[]b", "*", "a.*", "a][", "a[[]]"} {
		t.Run(fmt.Sprintf("%q is no path", path), func(t *testing.T) {
			if steps, ok := Path(path).steps(); ok {
				t.Errorf("%v", steps)
			}
		})
	}
}
