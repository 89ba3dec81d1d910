package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/auth"
)

// freeAddress is an address where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// idsRegistryOfThePage is the registry that the page shows, with another address.
func idsRegistryOfThePage(t *testing.T, provider string) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(version: 1\n.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page shows no registry")
	}
	return strings.ReplaceAll(string(found[1]), "127.0.0.1:7391", provider)
}

// checkedIDs runs semel check ids, and returns its report by the ids of sentences.
func checkedIDs(t *testing.T, args ...string) (int, check.Report, map[string]check.Verdict) {
	t.Helper()
	code, out, errs := semelWith(t, "", append([]string{"check", "ids", "--json"}, args...)...)
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
		t.Fatalf("exit %d, %v, %s", code, err, errs)
	}
	verdicts := map[string]check.Verdict{}
	for _, v := range report.Verdicts {
		verdicts[v.ID] = v
	}
	return code, report, verdicts
}

func TestCheckIDsOfTheServiceKeepsEachSentence(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func() string{
		"memory":   func() string { return "memory:" },
		"embedded": func() string { return "pebble:" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clause.Proves(t, "IDS-XIII.1", "IDS-XIII.2", "IDS-XIII.3", "IDS-XIII.4", "IDS-XIII.5", "IDS-XIII.6", "IDS-XIII.7")
			provider, dir := freeAddress(t), t.TempDir()
			keys, err := evidence.GenerateKeys("example.com/commands")
			if err != nil {
				t.Fatal(err)
			}
			registry, key := filepath.Join(dir, "commands.yaml"), filepath.Join(dir, "evidence.key")
			for file, text := range map[string]string{registry: idsRegistryOfThePage(t, provider), key: string(keys.Text())} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			token, sum := auth.NewToken()
			at, admin := serving(t, fmt.Sprintf("store: {url: %q}\nauth: {tokens: [{name: alice, tenant: acme, sha256: %q, roles: [viewer]}]}\ncommands: {registry: %q}\nevidence: {key_file: %q}\n",
				store(), sum, registry, key))
			code, report, verdicts := checkedIDs(t, at+"/v1/commands", "--header", "Authorization: Bearer "+token, "--provider", provider, "--evidence", admin+"/v1/evidence/entries?name={command_id}")
			if code != ExitOK || !report.OK || len(verdicts) != 18 {
				t.Errorf("exit %d, %d verdicts", code, len(verdicts))
			}
			for id, v := range verdicts {
				if v.Outcome != check.Kept || !strings.HasPrefix(v.Rests, "IDS-") {
					t.Errorf("%s is %s, and rests on %s: %s", id, v.Outcome, v.Rests, v.Saw)
				}
			}
		})
	}
}

// naive executes each command that comes, unless it knows the message.
type naive struct{ provider string }

func (n naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e struct {
		CommandID string `json:"command_id"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &e) != nil {
		http.Error(w, "an envelope, please", http.StatusBadRequest)
		return
	}
	resp, err := http.Post("http://"+n.provider, "application/json", strings.NewReader(string(body)))
	if err != nil {
		http.Error(w, "the provider doesn't answer", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	fmt.Fprintf(w, `{"status":"executed","decision":"first_seen","command_id":%q,"idempotency_key":%q,"summary":"Done"}`, e.CommandID, e.CommandID)
}

func TestCheckIDsOfANaiveServiceIsRed(t *testing.T) {
	t.Parallel()
	clause.Proves(t, "IDS-XIII.7")
	provider := freeAddress(t)
	srv := httptest.NewServer(naive{provider})
	defer srv.Close()
	code, report, verdicts := checkedIDs(t, srv.URL, "--provider", provider, "--header", "Authorization: Bearer secret-of-alice")
	if code != ExitCheck || report.OK || report.Groups["duplicates"] != check.Red {
		t.Errorf("exit %d, the report is %+v", code, report.Groups)
	}
	for id, want := range map[string]check.Outcome{
		"duplicates.once": check.Broken, "duplicates.key": check.Broken, "duplicates.apart": check.Kept,
		"concurrent.once": check.Unseen, "confirmation.asked": check.Unseen,
	} {
		if v := verdicts[id]; v.Outcome != want {
			t.Errorf("%s is %s: %s", id, v.Outcome, v.Saw)
		}
	}
	v := verdicts["duplicates.once"]
	if again := strings.Join(v.Reproduce, "\n"); !strings.Contains(v.Rests, "IDS-XIII.1") || !strings.Contains(again, "$key1") || !strings.Contains(again, "$AUTHORIZATION") || strings.Contains(fmt.Sprint(v), "secret-of-alice") {
		t.Errorf("it rests on %s, and is seen again by\n%s", v.Rests, again)
	}
}

func TestCheckIDsSaysWhyThereIsNoVerdict(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for want, args := range map[string][]string{
		"--i-know-it-has-effects":                  {"https://192.0.2.1/v1/commands"},
		"isn't one of lines such as":               {srv.URL, "--header", "alice"},
		"the command charge of the entity idstest": {srv.URL, "--provider", "127.0.0.1:0"},
		"where --provider says":                    {srv.URL, "--provider", srv.Listener.Addr().String()},
	} {
		code, _, errs := semelWith(t, "", append([]string{"check", "ids"}, args...)...)
		if usage := strings.HasPrefix(want, "--i") || strings.HasPrefix(want, "isn't"); code == ExitOK || usage != (code == ExitUsage) || !strings.Contains(errs, want) {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}
