package keytemplate

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFill(t *testing.T) {
	payment := "payment:{order_id}:{amount}:{currency}"
	for _, test := range []struct {
		name, template string
		values         map[string]string
		want, err      string
	}{
		{name: "values replace fields", template: payment,
			values: map[string]string{"order_id": "order_789", "amount": "2999", "currency": "USD"}, want: "payment:order_789:2999:USD"},
		{name: "a value with the separator is encoded", template: payment,
			values: map[string]string{"order_id": "a:1", "amount": "2", "currency": "USD"}, want: "payment:a%3A1:2:USD"},
		{name: "what is not ASCII is encoded byte by byte", template: "user:{user_id}",
			values: map[string]string{"user_id": "é %"}, want: "user:%C3%A9%20%25"},
		{name: "a field may occur twice", template: "{user_id}:{user_id}", values: map[string]string{"user_id": "u"}, want: "u:u"},
		{name: "all that is wrong with values is said at once", template: payment,
			values: map[string]string{"order_id": "", "amout": "1", "currency": "USD"},
			err:    "the value for {order_id} is empty\nno value for {amount}\nthere is no field {amout} in " + payment},
		{name: "a key that no door would take is refused", template: "user:{user_id}",
			values: map[string]string{"user_id": strings.Repeat("x", 251)},
			err:    "the key has 256 bytes, more than 255: use a digest in place of the longest value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tmpl, err := Parse(test.template)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tmpl.Fill(test.values)
			if got != test.want || fmt.Sprint(err) != orNil(test.err) {
				t.Errorf("Fill = %q, %v; want %q, %v", got, err, test.want, orNil(test.err))
			}
		})
	}
}

func orNil(s string) string {
	if s == "" {
		return "<nil>"
	}
	return s
}

// TestDifferentValuesMakeDifferentKeys is the reason for encoding: what moves the
// boundary between two values changes the key, whatever the values look like.
func TestDifferentValuesMakeDifferentKeys(t *testing.T) {
	tmpl, err := Parse("p:{a}:{b}")
	if err != nil {
		t.Fatal(err)
	}
	value := rapid.StringMatching(`[a:%.A3]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := value.Draw(t, "x"), value.Draw(t, "y"), value.Draw(t, "z")
		separator := rapid.SampledFrom([]string{":", "%3A", "%253A"}).Draw(t, "separator")
		k1, err1 := tmpl.Fill(map[string]string{"a": x + separator + y, "b": z})
		k2, err2 := tmpl.Fill(map[string]string{"a": x, "b": y + separator + z})
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if k1 == k2 {
			t.Fatalf("both make %q", k1)
		}
	})
}

func TestParse(t *testing.T) {
	for _, test := range []struct{ name, template, err string }{
		{"a brace that is not closed", "a:{b", "column 3: the brace is never closed"},
		{"a closing brace alone", "a}b:{c}", "column 2: a closing brace without an opening one"},
		{"a field without a name", "a:{}", `column 4: "" isn't a field name: use letters, digits, _, - and ., beginning with a letter`},
		{"fields that touch", "{a}{b}", "column 4: two fields touch, so different values could make the same key: put a : between them"},
		{"a separator that values can have", "{a}-{b}", `column 4: "-" may also occur inside a value, so different values could make the same key: use a separator such as :`},
		{"a literal that is not visible ASCII", "a b:{c}", "column 2: a key has visible ASCII characters only"},
		{"a percent sign", "a%:{c}", "column 2: '%' is kept for encoded values"},
		{"all problems are reported", "a b{c}{d}", "column 2: a key has visible ASCII characters only\ncolumn 7: two fields touch, so different values could make the same key: put a : between them"},
	} {
		t.Run(test.name+" is refused", func(t *testing.T) {
			if _, err := Parse(test.template); fmt.Sprint(err) != test.err {
				t.Errorf("Parse(%q) = %v, want %s", test.template, err, test.err)
			}
		})
	}
}

func TestValues(t *testing.T) {
	for _, test := range []struct {
		name, text, want, err string
	}{
		{name: "texts, numbers and truth values have one text each", text: `{"a":"x:y","b":2.999e3,"c":true,"d":9007199254740993}`, want: "map[a:x:y b:2999 c:true d:9007199254740993]"},
		{name: "all that have none are named", text: `{"a":null,"b":[1],"c":{}}`, want: "map[]",
			err: "the value for {a} is null, not a string, a number, true or false\nthe value for {b} is [1], not a string, a number, true or false\nthe value for {c} is {}, not a string, a number, true or false"},
		{name: "two members of one name are refused", text: `{"a":1,"a":2}`, want: "map[]", err: "invalid JSON at byte 7: "},
		{name: "anything but an object is refused", text: `[1]`, want: "map[]", err: "the values are not a JSON object"},
		{name: "null is refused", text: `null`, want: "map[]", err: "the values are not a JSON object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Values([]byte(test.text))
			if fmt.Sprint(got) != test.want || !strings.HasPrefix(fmt.Sprint(err), orNil(test.err)) {
				t.Errorf("Values(%s) = %v, %v; want %s, %s", test.text, got, err, test.want, orNil(test.err))
			}
		})
	}
}

func TestCartHash(t *testing.T) {
	hash := func(t *testing.T, items string) string {
		t.Helper()
		h, err := CartHash(strings.NewReader(items))
		if err != nil {
			t.Fatalf("CartHash(%s): %v", items, err)
		}
		return h
	}
	ab := hash(t, `{"variant":"A","quantity":1,"price":"9.99"} {"variant":"B","quantity":2,"price":"9.99"}`)
	for _, test := range []struct {
		name, items string
		same        bool
	}{
		{"the order of items does not matter", `{"variant":"B","quantity":2,"price":"9.99"} {"variant":"A","quantity":1,"price":"9.99"}`, true},
		{"the order of members and the way a number is written do not matter", `{"price":"9.99","quantity":1.0,"variant":"A"}` + "\n" + `{"variant":"B","price":"9.99","quantity":20e-1}`, true},
		{"quantities belong to their variants", `{"variant":"A","quantity":2,"price":"9.99"} {"variant":"B","quantity":1,"price":"9.99"}`, false},
		{"another price is another cart", `{"variant":"A","quantity":1,"price":"9.98"} {"variant":"B","quantity":2,"price":"9.99"}`, false},
		{"an item more is another cart", `{"variant":"A","quantity":1,"price":"9.99"} {"variant":"B","quantity":2,"price":"9.99"} {"variant":"B","quantity":2,"price":"9.99"}`, false},
		{"text can't move from one attribute to the next", `{"variant":"A1","quantity":"9","price":".99"} {"variant":"B","quantity":2,"price":"9.99"}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := hash(t, test.items); (got == ab) != test.same {
				t.Errorf("hash = %s, that of the first cart is %s", got, ab)
			}
		})
	}
	t.Run("prices that binary64 can't tell apart differ", func(t *testing.T) {
		if hash(t, `{"variant":"A","quantity":1,"price":9007199254740992}`) == hash(t, `{"variant":"A","quantity":1,"price":9007199254740993}`) {
			t.Error("the hashes are equal")
		}
	})
	for _, test := range []struct{ name, items, err string }{
		{"an empty cart", "", "the cart is empty"},
		{"a cart that is too long", strings.Repeat(`{"variant":"A","quantity":1,"price":1}`, MaxCartLines+1), "the cart has more than 10000 items"},
		{"an item that lacks members, or has others", `{"variant":"A","quantity":1,"price":1} {"variant":"A","note":1}`,
			"item 2: quantity is missing\nprice is missing\nnote is not part of the hash: leave it out"},
		{"an attribute that has no one text", `{"variant":null,"quantity":true,"price":[1]}`,
			"item 1: variant is null, not a string or a number\nquantity is true, not a string or a number\nprice is [1], not a string or a number"},
		{"an item that is no object", `3`, "item 1: not a JSON object"},
	} {
		t.Run(test.name+" is refused", func(t *testing.T) {
			if _, err := CartHash(strings.NewReader(test.items)); fmt.Sprint(err) != test.err {
				t.Errorf("error = %v, want %s", err, test.err)
			}
		})
	}
}
