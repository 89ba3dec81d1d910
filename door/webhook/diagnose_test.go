package webhook

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestDiagnose(t *testing.T) {
	one := func(file, want string, change func(v *vector, d *Delivery, o *VerifierOptions)) {
		t.Run(want, func(t *testing.T) {
			v, d := vectorOf(t, file)
			var opts VerifierOptions
			ver := v.verifier(t, func(o *VerifierOptions) { change(&v, d, o); opts = *o })
			got := ver.Diagnose(d, opts.Secrets)
			text := strings.Join(got.Hints, "\n")
			if got.Refusal == nil || !strings.Contains(text, want) {
				t.Errorf("%v: %q, want %s", got.Refusal, text, want)
			}
			for _, secret := range opts.Secrets {
				if strings.Contains(fmt.Sprint(got), secret) {
					t.Error("the diagnosis has the secret")
				}
			}
		})
	}
	one("shopify", "without the line end behind it", func(_ *vector, d *Delivery, _ *VerifierOptions) { d.Body = append(d.Body, '\n') })
	one("stripe", "parsed the JSON", func(_ *vector, d *Delivery, _ *VerifierOptions) {
		d.Body = bytes.ReplaceAll(d.Body, []byte(`:"`), []byte(`: "`))
	})
	one("github", "without the white space around it", func(_ *vector, _ *Delivery, o *VerifierOptions) { o.Secrets = []string{"mysecret\n"} })
	one("github", "without the quotes around it", func(_ *vector, _ *Delivery, o *VerifierOptions) { o.Secrets = []string{`"mysecret"`} })
	one("square", "right for the address https://hooks.example.com/hooks/square", func(_ *vector, _ *Delivery, o *VerifierOptions) {
		o.URL = "http://hooks.example.com/hooks/square"
	})
	one("shopify", "is that of another endpoint", func(_ *vector, d *Delivery, _ *VerifierOptions) { d.Body[1] ^= 1 })
	one("stripe", "The signature itself is right", func(_ *vector, _ *Delivery, o *VerifierOptions) {
		o.Now = func() time.Time { return signedAt.Add(time.Hour) }
	})
	one("stripe", "There is a header Merchant-Signature", func(_ *vector, d *Delivery, _ *VerifierOptions) {
		d.Header = http.Header{"Merchant-Signature": d.Header["Stripe-Signature"]}
	})
	t.Run("a delivery that is right has events and no hints", func(t *testing.T) {
		v, d := vectorOf(t, "whatsapp")
		if got := v.verifier(t).Diagnose(d, []string{v.secret}); got.Refusal != nil || len(got.Events) != 4 || got.Hints != nil {
			t.Errorf("%+v", got)
		}
	})
}
