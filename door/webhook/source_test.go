package webhook

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBuiltinSources(t *testing.T) {
	unsigned := map[string][]string{ // what their senders leave out of the signature
		"shopify": {
			"{header:X-Shopify-Event-Id}", "{header:X-Shopify-Shop-Domain}", "{header:X-Shopify-Topic}",
			"{header:X-Shopify-Webhook-Id}", "{header:X-Shopify-Name?}", "{header:X-Shopify-Webhook-Id?}",
		},
		"shopify-events": {
			"{header:Shopify-Event-Id}", "{header:Shopify-Shop-Domain}", "{header:Shopify-Topic}", "{header:Shopify-Action?}",
			"{header:Shopify-Webhook-Id}", "{header:Shopify-Handle?}", "{header:Shopify-Webhook-Id?}",
		},
		"github": {"{header:X-GitHub-Delivery}", "{header:X-GitHub-Hook-ID?}", "{header:X-GitHub-Hook-Installation-Target-ID?}"},
		// Where a field ends isn't signed, nor more of a body than its CRC-32.
		"twilio": {"{header:I-Twilio-Idempotency-Token}", "{digest}"},
		"paypal": {"{body:id}"},
		// A token signs nothing.
		"gitlab":   {"{header:Idempotency-Key}", "{header:X-Gitlab-Event-UUID}", "{header:X-Gitlab-Webhook-UUID?}", "{digest}"},
		"telegram": {"{body:update_id}"},
	}
	for _, name := range Sources() {
		s, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != name || s.About == "" {
			t.Errorf("%s: %+v", name, s)
		}
		if s.Window() < time.Duration(s.Horizon) || s.Window() < DefaultWindow {
			t.Errorf("%s forgets events after %v, and its sender repeats them for %v", name, s.Window(), s.Horizon)
		}
		if got := s.Unsigned(); !slices.Equal(got, unsigned[name]) {
			t.Errorf("%s doesn't sign %q, want %q", name, got, unsigned[name])
		}
	}
	if _, err := Builtin("strip"); err == nil || !strings.Contains(err.Error(), "stripe") {
		t.Errorf("%v", err)
	}
	if _, err := Builtin("../sources/stripe"); err == nil {
		t.Error("a path is not a name")
	}
}

func TestCoarseIdentities(t *testing.T) {
	for id, want := range map[string]int{
		`"{body:id}"`:                                   0,
		`["{body:payment}", "{body:type}"]`:             1,
		`["{body:payment}", "{body:type}", "{digest}"]`: 0,
		`"{body:payment?}"`:                             1,
	} {
		text := strings.Replace(ownSource, `{id: "{body:id}"}`, `{id: `+id+`, type: "{body:type}"}`, 1) +
			"payment: {id: \"{body:payment}\", events: [{kind: a, is: captured}]}\n"
		s, err := Load("shop.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Coarse(); len(got) != want {
			t.Errorf("%s: %q", id, got)
		}
	}
}

const ownSource = `name: shop
signature: {in: "{header:X-Sign}", encoding: hex}
events: [{id: "{body:id}"}]
horizon: 1d
`

func TestSourceOfOnesOwn(t *testing.T) {
	s, err := Load("shop.yaml", []byte(ownSource))
	if err != nil {
		t.Fatal(err)
	}
	if s.Signature.Signed != "{body}" || s.Patience == 0 || s.Window() != DefaultWindow {
		t.Errorf("%+v", s)
	}
}

func TestWrongSourcesAreRefusedWithTheirPlace(t *testing.T) {
	for name, test := range map[string]struct{ old, new, want string }{
		"a member that there isn't":              {"horizon:", "horizont:", "shop.yaml:4:1: horizont: there is no setting \"horizont\""},
		"a member below that there isn't":        {"encoding: hex", "encodings: hex", "shop.yaml:2:"},
		"no events":                              {"events: [{id: \"{body:id}\"}]\n", "", "events is missing"},
		"no horizon":                             {"horizon: 1d\n", "", "horizon is missing"},
		"an encoding that there isn't":           {"hex", "base32", "not one of hex, base64"},
		"a place that there isn't":               {"{body:id}", "{cookie:id}", "is not a place"},
		"a brace that isn't closed":              {"{body:id}", "{body:id", "not closed"},
		"a path that can't be read":              {"body:id", "body:a..b", "is not a path"},
		"a signature in two places":              {"{header:X-Sign}", "{header:X-Sign}{header:Y}", "one header"},
		"a list that is not gone through":        {"{body:id}", "{body:items[].id}", "a list that each does not go through"},
		"an id that changes with each retry":     {"{body:id}", "{signature:t}", "another in each delivery"},
		"a time that is not signed":              {"horizon:", "timestamp: {in: \"{header:X-Time}\"}\nhorizon:", "the time is not signed"},
		"a tolerance that protects from nothing": {"horizon:", "timestamp: {in: \"{header:X-Time}\", tolerance: 2d}\nhorizon:", "is not between 0s and 1d"},
		"labels without a label":                 {"encoding: hex", "encoding: hex, form: labels", "the label of signatures is missing"},
		"a name that is not one":                 {"name: shop", "name: My Shop", "is not a name"},
		"no encoding":                            {", encoding: hex", "", "write hex or base64"},
		"a token that signs":                     {"encoding: hex", "algorithm: token, signed: \"{body}\"", "a token signs nothing"},
		"a token in hexadecimal":                 {"encoding: hex", "algorithm: token, encoding: hex", "a token signs nothing"},
		"a time beside a token":                  {"encoding: hex}", "algorithm: token}\ntimestamp: {in: \"{header:X-Time}\"}", "the time is not signed"},
		"a unit that there isn't":                {"horizon:", "timestamp: {in: \"{header:X-Time}\", unit: min}\nhorizon:", "not one of s, ms, rfc3339"},
		"a list within a list without a name":    {"{body:id}", "{body:a.[].id}", "is not a path"},
		"a digest beside an unsigned address":    {"encoding: hex", "encoding: hex, body_sha256: h", "the address is not signed"},
		"compressed in no way":                   {"horizon:", "signs_compressed: true\nhorizon:", "nothing says how"},
		"a rest of nothing":                      {"{id: \"{body:id}\"}", "{id: \"{body:id}\", rest: true}", "nothing that could be left"},
		"a free field of nothing":                {"encoding: hex", "encoding: hex, free: \"{body:x}\"", "not a place of what is signed"},
		"a list in what is ignored":              {"{id: \"{body:id}\"}", "{id: \"{body:id}\", ignore: \"a[].b\"}", "without lists"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(ownSource, test.old, test.new, 1)
			if text == ownSource {
				t.Fatal("nothing was replaced")
			}
			_, err := Load("shop.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "shop.yaml:") {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if _, err := Load("shop.yaml", nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("%v", err)
	}
}

func TestKeysOfOtherPartsDiffer(t *testing.T) {
	long := strings.Repeat("x", 300)
	seen := map[string]bool{}
	for _, parts := range [][]string{{"a:b", "c"}, {"a", "b:c"}, {"a", "b", "c"}, {"a%3Ab", "c"}, {long}, {long + "y"}, {"a\x00"}, nil} {
		key := join(parts, 256)
		if seen[key] || len(key) > 256 {
			t.Errorf("%q gives %q", parts, key)
		}
		seen[key] = true
	}
}

func TestParseCapture(t *testing.T) {
	for name, test := range map[string]struct{ text, body, want string }{
		"with carriage returns":    {"POST /a HTTP/1.1\r\nX: 1\r\n\r\n{}\r\n\r\n", "{}\r\n\r\n", ""},
		"without":                  {"POST /a HTTP/1.1\nX: 1\n\n{}\n\n{}", "{}\n\n{}", ""},
		"without the protocol":     {"POST /a\nX: 1\n\n", "", ""},
		"no empty line":            {"POST /a HTTP/1.1\nX: 1\n", "", "no empty line"},
		"no first line":            {"X: 1\nY: 2\n\n{}", "", "first line"},
		"a body of another length": {"POST /a HTTP/1.1\nContent-Length: 3\n\n{}", "", "Content-Length is 3, and the body has 2"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseCapture([]byte(test.text))
			switch {
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %s", err, test.want)
			case test.want == "" && (err != nil || string(c.Body) != test.body || c.Target != "/a" || c.Header.Get("X") != "1"):
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}
