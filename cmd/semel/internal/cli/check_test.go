package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/rig/stage"
)

// shop charges as often as it is asked to, and says how often that was.
type shop struct{ charges atomic.Int64 }

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprintln(w, s.charges.Load())
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request broke off
	}
	n := s.charges.Add(1)
	if strings.Contains(string(body), "slow") {
		<-time.After(200 * time.Millisecond) // its bank is
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "charge %d", n)
}

func TestCheckOfANaiveServiceIsRed(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(new(shop))
	defer srv.Close()
	junit := filepath.Join(t.TempDir(), "check.xml")
	code, out, errs := semelWith(t, "POST /charges\n\n{\"amount\": 12}\n", "check", "http", srv.URL, "--request", "-", "--count", srv.URL, "--junit", junit, "--json")
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != ExitCheck || errs != "" {
		t.Fatalf("exit %d, %v, %s", code, err, errs)
	}
	if report.OK || report.Groups["replay"] != check.Red || report.Profile != "ietf-07" {
		t.Errorf("the report is %+v", report)
	}
	if text, err := os.ReadFile(junit); err != nil || !strings.Contains(string(text), `name="replay.once"`) {
		t.Errorf("the file for JUnit has %s, %v", text, err)
	}
}

func TestCheckRefusesOtherMachines(t *testing.T) {
	t.Parallel()
	if code, _, errs := semelWith(t, "", "check", "http", "https://192.0.2.1/charges"); code != ExitUsage || !strings.Contains(errs, "--i-know-it-has-effects") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// TestCheckOfAKilledProxyIsGreen kills semel proxy where the crash is, while a call runs.
func TestCheckOfAKilledProxyIsGreen(t *testing.T) {
	t.Parallel()
	exe, book := program(t), new(shop)
	upstream := httptest.NewServer(book)
	t.Cleanup(upstream.Close)
	flags := []string{"--store", "pebble:" + t.TempDir()}
	var p *stage.Process
	restart := func(context.Context) error {
		p.Kill()
		u, err := url.Parse(p.URL)
		if err == nil {
			p = startProxy(t, exe, upstream.URL, append(flags, "--listen", u.Host)...)
		}
		return err
	}
	p = startProxy(t, exe, upstream.URL, flags...)
	report, err := check.Run(t.Context(), check.Options{
		URL: p.URL, Count: upstream.URL, Restart: restart, Patience: time.Second, Seed: 5,
		Requests: "POST /charges\n\n{\"amount\": 12}\n### slow\nPOST /charges\n\n{\"amount\": 12, \"bank\": \"slow\"}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK || report.Groups["crash"] != check.Green {
		var text strings.Builder
		_ = report.Print(&text)
		t.Error(text.String())
	}
}
