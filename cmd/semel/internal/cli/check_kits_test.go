package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTryForrst(t *testing.T) {
	provider := freeAddress(t)
	at, _ := serving(t, "store: {url: 'memory:'}\nforrst:\n  - path: /forrst\n    upstream: http://"+provider+"\n    functions:\n      - {name: payments.charge, versions: [1.0.0, 2.0.0]}\n      - {name: payments.refund, versions: [1.0.0]}\n")
	code, out, errs := semelWith(t, "", "check", "forrst", at+"/forrst", "--provider", provider)
	t.Log(code, out, errs)
}

func TestTryWebhook(t *testing.T) {
	for _, mode := range []string{"ack", "sync"} {
		for source, secret := range map[string]string{"stripe": "whsec_0123456789abcdef0123456789abcdef", "github": "0123456789abcdef0123456789abcdef", "shopify": "shpss_0123456789abcdef0123456789abcdef", "standard-webhooks": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
			t.Run(mode+source, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "secret")
				os.WriteFile(file, []byte(secret), 0o600)
				provider := freeAddress(t)
				at, _ := serving(t, "store: {url: 'memory:'}\nauth: {default_tenant: acme}\nwebhooks: [{path: /hook, source: "+source+", secret_files: ['"+file+"'], mode: "+mode+", upstream: 'http://"+provider+"'}]\n")
				code, out, errs := semelWith(t, "", "check", "webhook", at+"/hook", "--provider", provider, "--source", source, "--secret", secret)
				t.Log(code, out, errs)
			})
		}
	}
}
