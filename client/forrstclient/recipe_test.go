package forrstclient_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestRecipe: the loop in JavaScript that the page shows does as the client in Go does.
func TestRecipe(t *testing.T) {
	clause.Proves(t, "FOR-RETRY.1")
	if _, err := exec.LookPath("node"); err != nil && os.Getenv("SEMEL_REQUIRE_SERVICES") != "1" {
		t.Skip("node is not there: scripts/install-sdks installs it")
	}
	recipe, err := os.ReadFile(filepath.Join("testdata", "retry.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "forrst.md"))
	if err != nil || !strings.Contains(string(page), "\n```js\n"+string(recipe)+"```\n") {
		t.Errorf("docs/forrst.md doesn't show testdata/retry.mjs as it is; %v", err)
	}
	for name, c := range map[string]struct {
		happens  []string
		opts     forrst.Options
		requests int
		result   string
		code     string
		paused   float64 // at last, in milliseconds
	}{
		"an answer that is lost":    {[]string{"lost", "gateway", "", "end"}, forrst.Options{}, 4, `{"charge_id":"ch_1"}`, "", 1000},
		"in the published form":     {[]string{"lost", "", "end"}, forrst.Options{PublishedForm: true}, 3, `{"charge_id":"ch_1"}`, "", 1000},
		"what never gets an answer": {[]string{"gateway"}, forrst.Options{}, 4, "", "SyntaxError", 0},
		"a refusal after a loss":    {[]string{"gateway", "superseded"}, forrst.Options{}, 2, "", "UNKNOWN", 0},
		"one of the call's record":  {[]string{"gateway", "cached"}, forrst.Options{}, 2, "", "CONFLICT", 0},
		"a refusal":                 {[]string{"superseded"}, forrst.Options{}, 1, "", "CONFLICT", 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, c.opts, c.happens...)
			server := httptest.NewServer(n)
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", filepath.Join("testdata", "run.mjs"), server.URL)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			var got struct {
				Result json.RawMessage
				Code   string
				Pauses []float64
			}
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if string(got.Result) != c.result || got.Code != c.code || len(got.Pauses) != c.requests-1 || c.paused != 0 && got.Pauses[len(got.Pauses)-1] != c.paused {
				t.Errorf("%s", out)
			}
			runs := 0
			if c.result != "" {
				runs = 1
			}
			n.told(c.requests, runs)
		})
	}
}
