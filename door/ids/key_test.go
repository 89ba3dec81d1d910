package ids

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

// drawValue draws a JSON value of maps, slices, text, numbers and so on.
func drawValue(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.StringN(0, 4, -1).Draw(t, "text")
	case 3, 4:
		return json.Number(big.NewInt(rapid.Int64().Draw(t, "number")).String())
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	}
	return drawObject(t, depth)
}

func drawObject(t *rapid.T, depth int) map[string]any {
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		// No name is ephemeral: none has more than two letters, and "ts" none of them.
		object[rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "name")] = drawValue(t, depth-1)
	}
	return object
}

// spell writes a value as text in one of the many ways that mean the same.
func spell(t *rapid.T, v any) string {
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
	switch x := v.(type) {
	case map[string]any:
		names := rapid.Permutation(sortedNames(x)).Draw(t, "order")
		var parts []string
		for _, name := range names {
			parts = append(parts, space+spell(t, name)+space+":"+spell(t, x[name]))
		}
		return "{" + strings.Join(parts, ",") + space + "}"
	case []any:
		var parts []string
		for _, item := range x {
			parts = append(parts, space+spell(t, item))
		}
		return "[" + strings.Join(parts, ",") + space + "]"
	case string:
		var b strings.Builder
		for _, r := range x {
			if r < 0x10000 && rapid.Bool().Draw(t, "escape") {
				fmt.Fprintf(&b, `\u%04x`, r)
				continue
			}
			quoted, _ := json.Marshal(string(r))
			b.Write(quoted[1 : len(quoted)-1])
		}
		return `"` + b.String() + `"`
	case json.Number:
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 1:
			return string(x) + ".0"
		case 2:
			return string(x) + ".00e0"
		}
		return string(x)
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// drawEnvelope draws the members of the key.
func drawEnvelope(t *rapid.T) map[string]any {
	id := rapid.StringMatching(`[a-b]{1,2}`)
	intent := map[string]any{"entity": id.Draw(t, "entity"), "action": id.Draw(t, "action")}
	switch rapid.IntRange(0, 3).Draw(t, "target") {
	case 1:
		intent["target"] = nil
	case 2:
		intent["target"] = id.Draw(t, "id")
	case 3:
		intent["target"] = toAny(rapid.SliceOfN(id, 0, 3).Draw(t, "ids"))
	}
	envelope := map[string]any{"tenant_id": id.Draw(t, "tenant"), "intent": intent, "args": drawObject(t, 2)}
	envelope[rapid.SampledFrom([]string{"actor_id", "effective_actor_id"}).Draw(t, "member")] = id.Draw(t, "actor")
	if rapid.Bool().Draw(t, "has kind") {
		envelope["command_kind"] = id.Draw(t, "command kind")
	}
	return envelope
}

func toAny(list []string) []any {
	items := []any{}
	for _, s := range list {
		items = append(items, s)
	}
	return items
}

func keyOf(t *rapid.T, text string) *Derivation {
	c, err := ParseCommand([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	d, err := Derive(c)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

func TestKeyIsThatOfTheMeaning(t *testing.T) {
	clause.Proves(t, "IDS-VII.1", "IDS-VII.3", "IDS-VII.4")
	rapid.Check(t, func(t *rapid.T) {
		envelope := drawEnvelope(t)
		first := keyOf(t, spell(t, envelope))
		// Another delivery: in another spelling, with other things around it.
		envelope["command_id"] = rapid.StringN(1, 5, -1).Filter(noNUL).Draw(t, "command id")
		envelope["trace"] = map[string]any{"message_id": rapid.StringN(1, 5, -1).Filter(noNUL).Draw(t, "message id")}
		envelope["received_at"] = "2026-01-02T03:04:05Z"
		second := keyOf(t, spell(t, envelope))
		if first.Key != second.Key || string(first.Canonical) != string(second.Canonical) || first.Fingerprint != second.Fingerprint {
			t.Fatalf("%s\n%s", first.Canonical, second.Canonical)
		}
	})
}

func noNUL(s string) bool { return !strings.Contains(s, "\x00") }

func TestDifferentMeaningsHaveDifferentKeys(t *testing.T) {
	clause.Proves(t, "IDS-VII.2", "IDS-XV.1")
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawEnvelope(t), drawEnvelope(t)
		if rapid.Bool().Draw(t, "near") {
			b = nearBy(t, a)
		}
		same := canonicalByHand(a) == canonicalByHand(b)
		if first, second := keyOf(t, spell(t, a)), keyOf(t, spell(t, b)); same != (first.Key == second.Key) {
			t.Fatalf("%s\n%s", first.Canonical, second.Canonical)
		}
	})
}

// nearBy is an envelope with one member of the key replaced.
func nearBy(t *rapid.T, a map[string]any) map[string]any {
	b, other := map[string]any{}, drawEnvelope(t)
	maps.Copy(b, a)
	name := rapid.SampledFrom([]string{"tenant_id", "intent", "args", "command_kind"}).Draw(t, "replaced")
	if delete(b, name); other[name] != nil || name != "command_kind" {
		b[name] = other[name]
	}
	return b
}

func TestSuppliedKeys(t *testing.T) {
	clause.Proves(t, "IDS-VII.1", "IDS-VIII.5")
	reg := vectorRegistry(t)
	derive := func(t *testing.T, action, key, actor string) (*Derivation, error) {
		t.Helper()
		c := Command{TenantID: "t", ActorID: actor, Intent: Intent{Entity: "order", Action: action}, IdempotencyKey: key}
		return reg.Derive(c)
	}
	t.Run("the derived key may be brought along, with and without its version", func(t *testing.T) {
		d, err := derive(t, "cancel", "", "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{d.Key, d.Hex()} {
			if again, err := derive(t, "cancel", key, "a"); err != nil || again.RecordKey != d.Key {
				t.Errorf("%v, %v", again, err)
			}
		}
	})
	t.Run("any other is a conflict", func(t *testing.T) {
		if _, err := derive(t, "cancel", "mine", "a"); !errors.Is(err, semel.ErrConflict) {
			t.Errorf("%v", err)
		}
	})
	t.Run("where callers choose, it is the record's, and no derived key can be imitated", func(t *testing.T) {
		d, err := derive(t, "import", "mine", "a")
		if err != nil || d.RecordKey == d.Key || !strings.HasSuffix(d.RecordKey, ":mine") {
			t.Fatalf("%+v, %v", d, err)
		}
		other, err := derive(t, "import", d.Key, "b")
		if err != nil || other.RecordKey == d.Key {
			t.Errorf("%+v, %v", other, err)
		}
	})
	t.Run("two actors that choose the same have two records", func(t *testing.T) {
		keys := []string{}
		for _, pair := range [][2]string{{"a", "k"}, {"b", "k"}, {"a:k", "k"}, {"a", "k:k"}} {
			d, err := derive(t, "import", pair[1], pair[0])
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, d.RecordKey)
		}
		if slices.Sort(keys); len(slices.Compact(keys)) != 4 {
			t.Errorf("%q", keys)
		}
	})
	t.Run("the fingerprint is that of the content, so another content under the key is a conflict", func(t *testing.T) {
		a, _ := derive(t, "import", "mine", "a")
		c := a.Command
		c.Args = json.RawMessage(`{"x":1}`)
		if b, err := reg.Derive(c); err != nil || b.RecordKey != a.RecordKey || b.Fingerprint == a.Fingerprint {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

func TestCommandsThatWereNotParsed(t *testing.T) {
	good := Command{TenantID: "t", ActorID: "a", Intent: Intent{Entity: "e", Action: "a"}}
	for name, spoil := range map[string]func(*Command){
		"no tenant":                       func(c *Command) { c.TenantID = "" },
		"no entity":                       func(c *Command) { c.Intent.Entity = "" },
		"no action":                       func(c *Command) { c.Intent.Action = "" },
		"no actor":                        func(c *Command) { c.ActorID = "" },
		"a tenant that is no UTF-8":       func(c *Command) { c.TenantID = "\xff" },
		"a target that is no UTF-8":       func(c *Command) { c.Intent.Target = TargetOf("\xff") },
		"a target that is no UTF-8 in it": func(c *Command) { c.Intent.Target = TargetsOf("a", "\xff") },
		"a kind that is no UTF-8":         func(c *Command) { c.CommandKind = "\xff" },
		"args that are no object":         func(c *Command) { c.Args = json.RawMessage(`[]`) },
		"args with a name twice":          func(c *Command) { c.Args = json.RawMessage(`{"a":1,"a":1}`) },
	} {
		t.Run(name+" gives no key", func(t *testing.T) {
			c := good
			spoil(&c)
			if d, err := Derive(c); err == nil {
				t.Errorf("the key of %s", d.Canonical)
			}
		})
	}
	t.Run("a good one has one", func(t *testing.T) {
		if _, err := Derive(good); err != nil {
			t.Error(err)
		}
	})
}
