package config

import (
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestFinancial: what moves money is archived and its failures are kept, or the
// configuration is refused, or says otherwise by name.
func TestFinancial(t *testing.T) {
	clause.Proves(t, "MAP-EXP.3", "MAP-EXP.4", "MAP-FLOW.6")
	const postgres = "store: {url: 'postgres://u@h/d'}\n"
	for name, c := range map[string]struct {
		text      string
		archive   bool
		in        string
		onFailure semel.AfterFailure
		wrong     string
	}{
		"nothing is said of an archive":               {"operations: [{name: pay, financial: true}]", false, "", "", "operations[0].financial: its records are archived"},
		"an archive is named":                         {"archive: {dir: ./a}\noperations: [{name: pay, financial: true}]", true, "files", semel.ReplayFailure, ""},
		"the store has one":                           {postgres + "operations: [{name: pay, financial: true}]", true, "store", semel.ReplayFailure, ""},
		"the store has one, but a directory is named": {postgres + "archive: {dir: ./a}\noperations: [{name: pay, financial: true}]", true, "files", semel.ReplayFailure, ""},
		"it is not wanted, by name":                   {"operations: [{name: pay, financial: true, archive: false}]", false, "files", semel.ReplayFailure, ""},
		"not wanted in a store that has one":          {postgres + "operations: [{name: pay, financial: true, archive: false}]", false, "store", semel.ReplayFailure, ""},
		"another operation":                           {"operations: [{name: pay}]", false, "files", semel.ReplayFailure, ""},
		"on a route": {
			"archive: {dir: ./a}\noperations: [{name: pay, financial: true}]\nroutes: [{match: POST /pay, upstream: 'http://127.0.0.1:1', operation: pay}]", true, "files", semel.ReplayFailure, "",
		},
		"on a route that retries by name": {
			"archive: {dir: ./a}\noperations: [{name: pay, financial: true, on_failure: retry}]\nroutes: [{match: POST /pay, upstream: 'http://127.0.0.1:1', operation: pay}]", true, "files", semel.RetryFailure, "",
		},
		"another operation on a route": {
			"operations: [{name: pay}]\nroutes: [{match: POST /pay, upstream: 'http://127.0.0.1:1', operation: pay}]", false, "files", semel.RetryFailure, "",
		},
		"on a route whose contract forbids to keep failures": {
			"archive: {dir: ./a}\noperations: [{name: pay, financial: true}]\nroutes: [{match: POST /pay, upstream: 'http://127.0.0.1:1', operation: pay, profile: acp}]", false, "", "", "routes[0].profile: the profile acp forbids",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c2, _, err := Load(Source{Data: []byte(c.text)})
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			op := c2.operation("pay")
			if op.Archive != c.archive || c2.Archives() != c.archive || c2.Archive.In != c.in || op.OnFailure != c.onFailure {
				t.Errorf("archive %t in %s, on failure %s", op.Archive, c2.Archive.In, op.OnFailure)
			}
			policy, err := op.Policy()
			if err != nil || (policy.OnExpiry == semel.ArchiveExpired) != c.archive {
				t.Errorf("%+v, %v", policy, err)
			}
		})
	}
}
