package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/rig/clause"
)

// frozen has the beginnings of the digests of what kits judge by. A digest changes when a revision
// of the document is released, and the sentences of the former one stay.
var frozen = map[string]string{"a2a": "65b69bfc3734ccfd", "activitypub": "b27d6421ebcf7737", "forrst": "8414b37b437b82c5", "ids": "5fc0ded2afe11614", "webhook": "bf5953d9b17ac2ad"}

func TestCheckedSentencesAreFrozenAndRestOnClauses(t *testing.T) {
	if names := slices.Sorted(maps.Keys(kits)); !slices.Equal(names, slices.Sorted(maps.Keys(frozen))) {
		t.Errorf("there are kits for %q", names)
	}
	for name, kit := range kits {
		if got := fmt.Sprintf("%x", sha256.Sum256(kit.Requirements))[:16]; got != frozen[name] {
			t.Errorf("the sentences of %s have the digest %s, and are frozen as %q", name, got, frozen[name])
		}
		for _, rests := range regexp.MustCompile(`on: (?:"(.*?)"|(\S+)),`).FindAllStringSubmatch(string(kit.Requirements), -1) {
			clauses, _, _ := strings.Cut(rests[1]+rests[2], "; ") // paragraphs follow
			for id := range strings.SplitSeq(clauses, ", ") {
				if _, ok := clause.Lookup(id); !ok {
					t.Errorf("there is no clause %q in what %s judges by", id, name)
				}
			}
		}
	}
}

// judgedByKit runs a kit, and returns the ids of its sentences that aren't kept. Each of its sentences
// has a verdict.
func judgedByKit(t *testing.T, kit string, args ...string) (code int, report check.Report, notKept []string) {
	t.Helper()
	code, out, errs := semelWith(t, "", append([]string{"check", kit, "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
		t.Fatalf("exit %d, %v, %s", code, err, errs)
	}
	var written, judged []string
	for _, id := range regexp.MustCompile(`id: ([\w.]+),`).FindAllStringSubmatch(string(kits[kit].Requirements), -1) {
		written = append(written, id[1])
	}
	for _, v := range report.Verdicts {
		judged = append(judged, v.ID)
		if v.Outcome != check.Kept {
			t.Logf("%s is %s: %s", v.ID, v.Outcome, v.Saw)
			notKept = append(notKept, v.ID)
		}
	}
	slices.Sort(written)
	if slices.Sort(judged); !slices.Equal(written, judged) {
		t.Errorf("there are verdicts for %q, and sentences for %q", judged, written)
	}
	return code, report, notKept
}

// configuredByThePage is the configuration that a section of the page shows, with another provider.
func configuredByThePage(t *testing.T, section, provider string) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## "+section+"\n")
	found := regexp.MustCompile("(?s)<!-- config -->\n```yaml\n(.*?)```").FindStringSubmatch(rest)
	if found == nil {
		t.Fatalf("the page has no configuration under %q", section)
	}
	return strings.ReplaceAll(found[1], "127.0.0.1:7391", provider)
}

const (
	forrstSection, webhookSection = "Implementations of Forrst's idempotency extension", "Receivers of webhooks"
	secretOfThePage               = "whsec_0123456789abcdef0123456789abcdef"
)

// TestCheckCommandsOfThePage runs what the page shows, at a service that is configured as it says.
func TestCheckCommandsOfThePage(t *testing.T) {
	t.Parallel()
	provider, secret := freeAddress(t), filepath.Join(t.TempDir(), "app.secret")
	if err := os.WriteFile(secret, []byte(secretOfThePage), 0o600); err != nil {
		t.Fatal(err)
	}
	webhooks := strings.ReplaceAll(configuredByThePage(t, webhookSection, provider), "app.secret", secret)
	at, _ := serving(t, "store: {url: 'memory:'}\n"+configuredByThePage(t, forrstSection, provider)+webhooks)
	p := newPage(t, "semel check forrst ", "semel check forrst --provider "+provider+" ", "semel check webhook ", "semel check webhook --provider "+provider+" ", "http://127.0.0.1:8480", at)
	p.walks("docs/check.md", "")
}

func TestCheckForrstOfTheServiceKeepsEachSentence(t *testing.T) {
	t.Parallel()
	provider := freeAddress(t)
	at, _ := serving(t, fmt.Sprintf("store: {url: %q}\n%s", "pebble:"+t.TempDir(), configuredByThePage(t, forrstSection, provider)))
	if code, report, notKept := judgedByKit(t, "forrst", at+"/forrst", "--provider", provider); code != ExitOK || !report.OK || notKept != nil {
		t.Errorf("exit %d, not kept: %q", code, notKept)
	}
}

func TestCheckWebhookOfTheServiceKeepsEachSentence(t *testing.T) {
	t.Parallel()
	for source, secret := range map[string]string{
		"stripe": secretOfThePage, "github": "It's a Secret to Everybody of us", "shopify": "shpss_0123456789abcdef0123456789abcdef",
		"standard-webhooks": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	} {
		for _, mode := range []string{"sync", "ack"} {
			t.Run(source+"/"+mode, func(t *testing.T) {
				t.Parallel()
				provider, file := freeAddress(t), filepath.Join(t.TempDir(), "secret")
				if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
					t.Fatal(err)
				}
				config := strings.NewReplacer("app.secret", file, "source: stripe", "source: "+source, "mode: sync", "mode: "+mode).Replace(configuredByThePage(t, webhookSection, provider))
				at, _ := serving(t, "store: {url: 'memory:'}\n"+config)
				code, report, notKept := judgedByKit(t, "webhook", at+"/webhooks/stripe", "--provider", provider, "--source", source, "--secret", secret)
				var want []string
				if source == "github" || source == "shopify" {
					want = []string{"signature.old"} // they sign no time
				}
				if code != ExitOK || !report.OK || !slices.Equal(notKept, want) {
					t.Errorf("exit %d, not kept: %q", code, notKept)
				}
			})
		}
	}
}

func TestCheckWebhookTakesADeliveryOfYours(t *testing.T) {
	t.Parallel()
	provider, dir := freeAddress(t), t.TempDir()
	secret, delivery := filepath.Join(dir, "secret"), filepath.Join(dir, "delivery.http")
	for file, text := range map[string]string{secret: "pdl_0123456789abcdef", delivery: "POST / HTTP/1.1\nContent-Type: application/json\n\n{\"event_id\":\"evt_{{unique}}\",\"event_type\":\"transaction.paid\"}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := strings.NewReplacer("app.secret", secret, "source: stripe", "source: paddle").Replace(configuredByThePage(t, webhookSection, provider))
	at, _ := serving(t, "store: {url: 'memory:'}\n"+config)
	code, _, notKept := judgedByKit(t, "webhook", at+"/webhooks/stripe", "--provider", provider, "--source", "paddle", "--secret", "pdl_0123456789abcdef", "--delivery", delivery)
	if code != ExitOK || notKept != nil {
		t.Errorf("exit %d, not kept: %q", code, notKept)
	}
	for want, args := range map[string][]string{
		`there is no source "stripey"`: {"--source", "stripey"},
		"make no delivery":             {"--source", "paddle", "--secret", "x"},
		"the secret of":                {"--source", "standard-webhooks", "--secret", "?"},
	} {
		if code, _, errs := semelWith(t, "", append([]string{"check", "webhook", at}, args...)...); code != ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}
