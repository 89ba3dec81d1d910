package webhook

import (
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// signedAt is when the deliveries in testdata were signed.
var signedAt = time.Unix(1614265330, 0)

// A vector is a delivery in testdata. Those that are published say where; the others were
// signed with openssl and Python's hmac.
type vector struct {
	file, source, secret, url string
	keys                      []string
}

//go:embed testdata/paypal.pem
var certificate string

// endpoint is what PayPal calls the address.
const endpoint = "7T012345AB678901C"

var vectors = []vector{
	{"standard-webhooks", "standard-webhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "", // standardwebhooks.com
		[]string{"webhook:standard-webhooks:msg_p5jXN8AQM9LWM0D4loKWxJek"}},
	{"standard-webhooks-ed25519", "standard-webhooks-ed25519", "whpk_3qLwXWkFXS//VDILRj7kQ4piLmP60u/yww1uO8Xegjs=", "",
		[]string{"webhook:standard-webhooks-ed25519:msg_ed25519"}},
	{"github", "github", "mysecret", "", // @octokit/webhooks-methods
		[]string{"webhook:github:72d3162e-cc78-11e3-81ab-4c9367dc0958"}},
	{"github-text", "github", "It's a Secret to Everybody", "", // docs.github.com
		[]string{"webhook:github:72d3162e-cc78-11e3-81ab-4c9367dc0959"}},
	{"adyen", "adyen", "DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00", "", // Adyen's libraries
		[]string{"webhook:adyen:pspReference:EVENT:true"}},
	{"adyen-authorisation", "adyen", "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056", "", // docs.adyen.com
		[]string{"webhook:adyen:7914073381342284:AUTHORISATION:true"}},
	{"adyen-header", "adyen-header", "DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00", "",
		[]string{"webhook:adyen-header:balancePlatform.balanceAccount.updated:BA1:DIGEST"}},
	{"shopify", "shopify", "shpss_0123456789abcdef", "",
		[]string{"webhook:shopify:98880550-7158-44d4-b7cd-2c97c8a091b5"}},
	{"shopify-events", "shopify-events", "shpss_0123456789abcdef", "",
		[]string{"webhook:shopify-events:1d3a0a27-0a6c-4a0f-9d36-7d63f3e2ad9c"}},
	{"stripe", "stripe", "whsec_0123456789abcdef", "",
		[]string{"webhook:stripe:evt_1NG8Du2eZvKYlo2CUI79vXWy"}},
	{"paddle", "paddle", "pdl_ntfset_0123456789abcdef", "", []string{"webhook:paddle:evt_01"}},
	{"slack", "slack", "8f742231b10e8888abcd99yyyzzz85a5", "", []string{"webhook:slack:Ev01"}},
	{"svix-bare", "svix", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "", []string{"webhook:svix:msg_svix"}}, // the same without whsec_
	{"svix", "svix", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "", []string{"webhook:svix:msg_svix"}},
	{"acp", "acp", "acp_0123456789abcdef", "",
		[]string{"webhook:acp:ord_1:DIGEST"}},
	{"square", "square", "asdf1234asdf1234", "https://hooks.example.com/hooks/square",
		[]string{"webhook:square:6a8f5f28-54a1-4eb0-a98a-3111513fd4fc"}},
	{"twilio", "twilio", "0123456789abcdef0123456789abcdef", "https://hooks.example.com/hooks/twilio",
		[]string{"webhook:twilio:5c7fb0b3-5b6c-4a0f-9d36-7d63f3e2ad9c"}},
	{"twilio-json", "twilio", "0123456789abcdef0123456789abcdef", "https://hooks.example.com/hooks/twilio",
		[]string{"webhook:twilio:5c7fb0b3-5b6c-4a0f-9d36-7d63f3e2ad9d"}},
	{"intercom", "intercom", "c0ffee00-0000-4000-8000-00000000c0de", "",
		[]string{"webhook:intercom:notif_ccd8a4d0-f965-11e3-a367-c779cae3e1b3"}},
	{"paystack", "paystack", "sk_live_0123456789abcdef", "", []string{"webhook:paystack:charge.success:302961"}},
	{"paypal", "paypal", certificate, "", []string{"webhook:paypal:WH-58D329510W468432D-8HN650336L201105X"}},
	{"sendgrid", "sendgrid", "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEhiWESLP+qGtjuGxetqnUOsnD6GTdzwOHhfnklIdl5dKrdHVfU0QO37P7HyWNEvIN46j48Yn2DrApH8r5un/d7w==", "",
		[]string{"webhook:sendgrid:cHJvY2Vzc2VkLTE", "webhook:sendgrid:Ym91bmNlLTI"}},
	{"hubspot", "hubspot", "yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy", "https://hooks.example.com/hooks/hubspot%3Aeu?to=a@b",
		[]string{"webhook:hubspot:1:12345:1614265329000", "webhook:hubspot:2:12346:1614265329000"}},
	{"gitlab", "gitlab", "a shared token", "", []string{"webhook:gitlab:f5e57a5c-2f0a-4b8e-9f8d-6a1d2c3b4e5f"}},
	{"telegram", "telegram", "a_shared-token", "", []string{"webhook:telegram:10000"}},
	{"whatsapp", "whatsapp", "an app's secret", "",
		[]string{"webhook:whatsapp:770001:wamid.A", "webhook:whatsapp:770001:wamid.B", "webhook:whatsapp:770001:sent:wamid.C", "webhook:whatsapp:770001:delivered:wamid.C"}},
}

func (v vector) delivery(t testing.TB) *Delivery {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "deliveries", v.file+".http"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCapture(data)
	if err != nil {
		t.Fatal(err)
	}
	return &c.Delivery
}

func (v vector) verifier(t testing.TB, change ...func(*VerifierOptions)) *Verifier {
	t.Helper()
	s, err := Builtin(v.source)
	if err != nil {
		t.Fatal(err)
	}
	opts := VerifierOptions{Source: s, Secrets: []string{v.secret}, URL: v.url, Endpoint: endpoint, Now: func() time.Time { return signedAt }}
	for _, c := range change {
		c(&opts)
	}
	ver, err := NewVerifier(opts)
	if err != nil {
		t.Fatal(err)
	}
	return ver
}

// wantCode fails unless err is a refusal with the code.
func wantCode(t *testing.T, err error, code Code) {
	t.Helper()
	if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Code != code {
		t.Errorf("error %v, want %s", err, code)
	}
}

func TestVectorsReproduce(t *testing.T) {
	used := map[string]bool{}
	for _, v := range vectors {
		used[v.source] = true
		t.Run(v.file, func(t *testing.T) {
			d, ver := v.delivery(t), v.verifier(t)
			events, err := ver.Verify(d)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, e := range events {
				keys = append(keys, strings.ReplaceAll(e.Key, digestOf(e.print), "DIGEST"))
			}
			if !slices.Equal(keys, v.keys) {
				t.Errorf("the keys are %q, want %q", keys, v.keys)
			}
			t.Run("another secret didn't sign it", func(t *testing.T) {
				other := newParty(t, ver.source).secret
				_, err := v.verifier(t, func(o *VerifierOptions) { o.Secrets = []string{other} }).Verify(d)
				wantCode(t, err, CodeSignatureWrong)
			})
			t.Run("either of two secrets may have signed it", func(t *testing.T) {
				for _, v2 := range vectors {
					if v2.source != v.source || v2.secret == v.secret {
						continue
					}
					for _, secrets := range [][]string{{v.secret, v2.secret}, {v2.secret, v.secret}} {
						if _, err := v.verifier(t, func(o *VerifierOptions) { o.Secrets = secrets }).Verify(d); err != nil {
							t.Error(err)
						}
					}
				}
			})
			t.Run("no byte of what is signed can be changed", func(t *testing.T) {
				if ver.source.signed == nil {
					t.Skip("nothing is signed")
				}
				changed := *d
				if v.source == "adyen" {
					changed.Body = []byte(strings.Replace(string(d.Body), `"success": "true"`, `"success": "false"`, 1))
				} else {
					changed.Body = append(slices.Clone(d.Body), ' ')
				}
				_, err := ver.Verify(&changed)
				wantCode(t, err, CodeSignatureWrong)
			})
			if ver.source.stamp == nil {
				return
			}
			t.Run("its time is near enough up to the tolerance", func(t *testing.T) {
				most := time.Duration(ver.source.Timestamp.Tolerance)
				for age, code := range map[time.Duration]Code{most: "", -most: "", most + time.Second: CodeTooOld, -most - time.Second: CodeTooNew} {
					_, err := v.verifier(t, func(o *VerifierOptions) { o.Now = func() time.Time { return signedAt.Add(age) } }).Verify(d)
					if code == "" && err != nil {
						t.Errorf("signed %v ago: %v", age, err)
					} else if code != "" {
						wantCode(t, err, code)
					}
				}
			})
		})
	}
	for _, name := range Sources() {
		if !used[name] {
			t.Errorf("no delivery of %s is in testdata", name)
		}
	}
}

func TestSignaturesThatCannotBeRead(t *testing.T) {
	stripe := vectors[slices.IndexFunc(vectors, func(v vector) bool { return v.file == "stripe" })]
	for name, test := range map[string]struct {
		value string
		code  Code
	}{
		"none":                     {"", CodeSignatureMissing},
		"only of another scheme":   {"t=1614265330,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39", CodeSignatureMalformed},
		"not hexadecimal":          {"t=1614265330,v1=xyz", CodeSignatureMalformed},
		"too short":                {"t=1614265330,v1=abcd", CodeSignatureMalformed},
		"without its time":         {"v1=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39", CodeSignatureMalformed},
		"one that nobody has made": {"t=1614265330,v1=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39", CodeSignatureWrong},
	} {
		t.Run(name, func(t *testing.T) {
			d := stripe.delivery(t)
			d.Header.Del("Stripe-Signature")
			if test.value != "" {
				d.Header.Set("Stripe-Signature", test.value)
			}
			_, err := stripe.verifier(t).Verify(d)
			wantCode(t, err, test.code)
			if strings.Contains(err.Error(), stripe.secret) {
				t.Error("the error has the secret")
			}
		})
	}
	t.Run("two headers", func(t *testing.T) {
		d := stripe.delivery(t)
		d.Header.Add("Stripe-Signature", d.Header.Get("Stripe-Signature"))
		_, err := stripe.verifier(t).Verify(d)
		wantCode(t, err, CodeSignatureMalformed)
	})
	t.Run("the right one among several", func(t *testing.T) {
		d := stripe.delivery(t)
		d.Header.Set("Stripe-Signature", "v1="+strings.Repeat("0", 64)+", "+d.Header.Get("Stripe-Signature"))
		if _, err := stripe.verifier(t).Verify(d); err != nil {
			t.Error(err)
		}
	})
}

func TestBadSecrets(t *testing.T) {
	for source, secret := range map[string]string{
		"standard-webhooks": "whsec_not base64 at all", "adyen": "hexadecimals", "github": "short",
		"standard-webhooks-ed25519": "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	} {
		s, err := Builtin(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewVerifier(VerifierOptions{Source: s, Secrets: []string{secret}}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s with a bad secret: %v", source, err)
		}
	}
	s, err := Builtin("square")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewVerifier(VerifierOptions{Source: s, Secrets: []string{"12345678", "23456789", "34567890"}}); err == nil ||
		!strings.Contains(err.Error(), "3 secrets") || !strings.Contains(err.Error(), "URL is missing") {
		t.Errorf("%v", err)
	}
}
