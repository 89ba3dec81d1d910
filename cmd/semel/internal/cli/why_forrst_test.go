package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// TestWhyOfAnyRequestOfForrst: whoever has the id of one try asks by it, be it that of a
// duplicate or of one that was refused and left nothing, in the store and at the service. The
// log has a line for each.
func TestWhyOfAnyRequestOfForrst(t *testing.T) {
	clause.Proves(t, "FOR-ID.2")
	id := regexp.MustCompile(`"id":"([^"]*)"`)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		request := id.FindSubmatch(body)[1]
		if string(request) == "req_1" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"%s","result":null,"errors":[{"code":"UNAUTHORIZED","message":"Told"}]}`, request)
			return
		}
		fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"%s","result":{"n":1}}`, request)
	}))
	t.Cleanup(upstream.Close)
	st := "pebble:" + filepath.Join(t.TempDir(), "store")
	config := fmt.Sprintf("store: {url: '%s'}\nlog: {level: debug}\noperations: [{name: payments}]\nforrst: [{path: /forrst, upstream: '%s', anonymous: share, functions: [{name: payments.charge, versions: [1.0.0], operation: payments}]}]\n", st, upstream.URL)
	url, _, stop := servingUntil(t, config)
	for n, amount := range []int{1, 1, 1, 2} {
		body := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_%d","call":{"function":"payments.charge","version":"1.0.0","arguments":{"amount":%d}},`+
			`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"order_cust42_1702500000"}}]}`, n+1, amount)
		resp, err := http.Post(url+"/forrst", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if want := []int{401, 200, 200, 409}[n]; resp.StatusCode != want {
			t.Fatalf("req_%d gets %d, want %d", n+1, resp.StatusCode, want)
		}
	}
	log := stop()
	record := ""
	for n, status := range []string{"", "processed", "cached", "conflict"} {
		request, found := fmt.Sprintf("req_%d", n+1), false
		for line := range strings.Lines(log) {
			var said map[string]any
			if json.Unmarshal([]byte(line), &said) != nil || said["request_id"] != request {
				continue
			}
			found = true
			shown, _ := said["forrst_status"].(string)
			if name, _ := said["record"].(string); record != "" && name != record || name == "" {
				t.Errorf("%s is logged with the record %q, and another with %q", request, name, record)
			} else {
				record = name
			}
			if said["function"] != "payments.charge" || said["version"] != "1.0.0" || shown != status {
				t.Errorf("%s is logged as %s", request, line)
			}
		}
		if !found {
			t.Errorf("no line about %s in\n%s", request, log)
		}
	}
	asks := func(from ...string) {
		t.Helper()
		for _, request := range []string{"req_1", "req_2", "req_3", "req_4"} {
			code, out, errs := semelWith(t, "", append([]string{"why", request}, from...)...)
			if code != ExitOK || !strings.Contains(out, "key order_cust42_1702500000") || !strings.Contains(out, "payments.charge@1.0.0") {
				t.Errorf("%s %q: exit %d, %s%s", request, from, code, out, errs)
			}
		}
		if code, _, errs := semelWith(t, "", append([]string{"why", "req_5"}, from...)...); code == ExitOK || !strings.Contains(errs, "no call has the name req_5") {
			t.Errorf("req_5 %q: exit %d, %s", from, code, errs)
		}
	}
	asks("--store", st)
	_, url, _ = servingUntil(t, config)
	asks("--url", url)
}
