package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// capturedFile is the file of a captured delivery.
func capturedFile(name string) string {
	return filepath.Join("../../../../door/webhook/testdata/deliveries", name+".http")
}

func TestWebhookHelp(t *testing.T) {
	for _, name := range []string{"", "verify", "source"} {
		args := append([]string{"webhook"}, strings.Fields(name)...)
		code, out, errs := semelWith(t, "", append(args, "--help")...)
		if code != ExitOK || errs != "" {
			t.Fatalf("exit %d, %s", code, errs)
		}
		golden(t, "help/semel-"+strings.Join(args, "-")+".txt", out)
		for line := range strings.Lines(out) {
			if len(line) > 100 {
				t.Errorf("a line has %d bytes: %s", len(line), line)
			}
		}
	}
}

func TestWebhookVerify(t *testing.T) {
	const at = "2021-02-25T15:02:10Z"
	shop, stripe := inFile(t, "shop", "shpss_0123456789abcdef\n"), inFile(t, "stripe", "whsec_0123456789abcdef\n")
	t.Run("a delivery that is right", func(t *testing.T) {
		code, out, errs := semelWith(t, "", "webhook", "verify", "--source", "shopify", "--secret-file", shop, capturedFile("shopify"))
		want := []string{"valid      shopify\n", "key        webhook:shopify:98880550-7158-44d4-b7cd-2c97c8a091b5\n", "scope      acme.myshopify.com:orders/create\n", "unsigned   {header:X-Shopify-Event-Id}"}
		for _, line := range want {
			if !strings.Contains(out, line) || code != ExitOK {
				t.Errorf("exit %d, %s%s, without %s", code, out, errs, line)
			}
		}
	})
	t.Run("one that is refused, and why", func(t *testing.T) {
		for name, test := range map[string]struct{ args, want []string }{
			"too old":           {[]string{"--source", "stripe", "--secret-file", stripe, capturedFile("stripe")}, []string{"refused    too_old: ", "hint       The signature itself is right."}},
			"another secret":    {[]string{"--source", "stripe", "--secret-file", shop, "--at", at, capturedFile("stripe")}, []string{"refused    signature_wrong: ", "is that of another endpoint"}},
			"of another sender": {[]string{"--source", "stripe", "--secret-file", stripe, capturedFile("shopify")}, []string{"refused    signature_missing: the header Stripe-Signature is missing", "X-Shopify-Hmac-Sha256"}},
		} {
			code, out, errs := semelWith(t, "", append([]string{"webhook", "verify"}, test.args...)...)
			for _, line := range test.want {
				if !strings.Contains(out, line) || code == ExitOK || errs != "" {
					t.Errorf("%s: exit %d, %s%s, without %s", name, code, out, errs, line)
				}
			}
			if strings.Contains(out+errs, "0123456789abcdef") {
				t.Errorf("%s: the secret is printed", name)
			}
		}
	})
	t.Run("the JSON", func(t *testing.T) {
		_, out, _ := semelWith(t, "", "webhook", "verify", "--json", "--source", "stripe", "--secret-file", stripe, "--at", at, capturedFile("stripe"))
		wantFields(t, out, "valid", "source", "events")
		if !strings.Contains(out, `"on": "captured"`) && !strings.Contains(out, `"on":"captured"`) {
			t.Error(out)
		}
		_, out, _ = semelWith(t, "", "webhook", "verify", "--json", "--source", "stripe", "--secret-file", stripe, capturedFile("stripe"))
		wantFields(t, out, "valid", "source", "code", "problem", "hints")
	})
	t.Run("one whose sender signs what it calls the address", func(t *testing.T) {
		args := []string{"webhook", "verify", "--source", "paypal", "--secret-file", "../../../../door/webhook/testdata/paypal.pem", "--at", at, capturedFile("paypal")}
		if code, out, errs := semelWith(t, "", append(args, "--endpoint", "7T012345AB678901C")...); code != ExitOK || !strings.Contains(out, "unsigned   {body:id}") {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
		if code, _, errs := semelWith(t, "", args...); code == ExitOK || !strings.Contains(errs, "Endpoint is missing") {
			t.Errorf("without --endpoint: exit %d, %s", code, errs)
		}
	})
	t.Run("one with the digest of its body in the address", func(t *testing.T) {
		token := inFile(t, "twilio", "0123456789abcdef0123456789abcdef\n")
		code, out, errs := semelWith(t, "", "webhook", "verify", "--source", "twilio", "--secret-file", token, "--url", "https://hooks.example.com/hooks/twilio", capturedFile("twilio-json"))
		if code != ExitOK || !strings.Contains(out, "valid      twilio") {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("what can't be used", func(t *testing.T) {
		for want, args := range map[string][]string{
			"give --source and --secret-file": {capturedFile("shopify")},
			"did you mean shopify":            {"--source", "shopfy", "--secret-file", shop, capturedFile("shopify")},
			"not a time":                      {"--source", "shopify", "--secret-file", shop, "--at", "noon", capturedFile("shopify")},
			"no empty line":                   {"--source", "shopify", "--secret-file", shop, shop},
		} {
			if code, _, errs := semelWith(t, "", append([]string{"webhook", "verify"}, args...)...); code == ExitOK || !strings.Contains(errs, want) {
				t.Errorf("%q: exit %d, %s, want %s", args, code, errs, want)
			}
		}
	})
}

func TestWebhookSource(t *testing.T) {
	code, out, errs := semelWith(t, "", "webhook", "source", "shopify")
	want, err := os.ReadFile("../../../../door/webhook/sources/shopify.yaml")
	if err != nil || code != ExitOK || out != string(want) {
		t.Errorf("exit %d, %s%s, %v", code, out, errs, err)
	}
	if _, out, _ = semelWith(t, "", "webhook", "source"); !strings.Contains(out, "github\n") || !strings.Contains(out, "whatsapp\n") {
		t.Error(out)
	}
	if code, _, errs = semelWith(t, "", "webhook", "source", "githab"); code != ExitUsage || !strings.Contains(errs, "github") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestConfigExplainRequest(t *testing.T) {
	shop := inFile(t, "shop", "shpss_0123456789abcdef\n")
	file := inFile(t, "semel.yaml", `
auth: {default_tenant: a}
routes:
  - {match: "POST /charges/{id}", upstream: "http://127.0.0.1:1/c"}
  - {match: /open/, upstream: "http://127.0.0.1:2", mode: "off"}
webhooks: [{path: /hooks/shopify, source: shopify, secret_files: ['`+shop+`'], upstream: 'http://127.0.0.1:3'}]
`)
	explain := func(request string, more ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, request, append([]string{"config", "explain", "--config", file, "--request", "-"}, more...)...)
		if code != ExitOK {
			t.Fatalf("exit %d, %s", code, errs)
		}
		return out
	}
	for request, want := range map[string]string{
		"POST /charges/7 HTTP/1.1\nHost: a\nIdempotency-Key: k-1\n\n{}": "door       route\nsetting    routes[0]\noperation  default\nupstream   http://127.0.0.1:1/c\nguarded    yes\nkey        k-1\n",
		"POST /charges/7 HTTP/1.1\nHost: a\n\n{}":                       "guarded    refused: This operation needs the header Idempotency-Key",
		"POST /open/7 HTTP/1.1\nHost: a\n\n{}":                          "guarded    no: The mode of the route is off, so it guards nothing.\n",
		"GET /charges/7 HTTP/1.1\nHost: a\n\n":                          "door       api\n",
		"GET /semel/status/x HTTP/1.1\nHost: a\n\n":                     "door       service\n",
	} {
		if out := explain(request); !strings.Contains(out, want) {
			t.Errorf("%s: %s, without %s", request, out, want)
		}
	}
	captured, err := os.ReadFile(capturedFile("shopify"))
	if err != nil {
		t.Fatal(err)
	}
	out := explain(string(captured))
	for _, want := range []string{"door       webhook\nsetting    webhooks[0]\noperation  webhook.shopify\n", "valid      shopify\n", "key        webhook:shopify:98880550"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s, without %s", out, want)
		}
	}
	wantFields(t, explain(string(captured), "--json"), "door", "setting", "operation", "upstream", "webhook")
	if code, _, errs := semelWith(t, "", "config", "explain", "--config", file, "--request", "-", "routes"); code != ExitUsage || !strings.Contains(errs, "needs no PATH") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
