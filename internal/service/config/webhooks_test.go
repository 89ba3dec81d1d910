package config

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/webhook"
)

func TestWebhooks(t *testing.T) {
	load := func() *Config {
		t.Helper()
		c, _, err := loadCorpus(t, "testdata/good/webhooks.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load()
	t.Run("what is left out follows from the source and the default tenant", func(t *testing.T) {
		w := c.Webhooks[0]
		if w.Name != "shopify" || w.Tenant != "shop" || w.Mode != webhook.Ack || w.Window != Duration(webhook.DefaultWindow) || w.OnAbandoned != "" || w.Evidence != semel.EvidenceDecisions {
			t.Errorf("%+v", w)
		}
		if w := c.Webhooks[1]; w.Tenant != "eu" || w.Evidence != semel.EvidenceDurable || w.OnAbandoned != semel.HoldAbandoned {
			t.Errorf("%+v", w)
		}
		if w := c.Webhooks[2]; w.Name != "own" {
			t.Errorf("%+v", w)
		}
	})
	t.Run("the schema names every source that is built in", func(t *testing.T) {
		schema, err := os.ReadFile("schema.json")
		if err != nil {
			t.Fatal(err)
		}
		_, named, _ := strings.Cut(string(schema), "How the sender signs and names its events: ")
		named, _, _ = strings.Cut(named, ", or a YAML file")
		if got := strings.Split(strings.Replace(named, " or ", ", ", 1), ", "); !slices.Equal(got, slices.Sorted(slices.Values(webhook.Sources()))) {
			t.Errorf("it names %q, and there are %q", got, webhook.Sources())
		}
	})
	t.Run("a receiver gets what the settings say", func(t *testing.T) {
		opts, err := c.Webhooks[1].Receiver()
		if err != nil || opts.Payments == nil || opts.Window != 30*24*time.Hour || !slices.Equal(opts.Secrets, []string{"an app secret"}) || opts.Evidence != semel.EvidenceDurable {
			t.Errorf("%+v, %v", opts, err)
		}
	})
	t.Run("what its destination doesn't need takes effect while the service runs", func(t *testing.T) {
		other := load()
		w := &other.Webhooks[0]
		w.Path, w.SecretFiles, w.Upstream, w.Mode = "/hook", w.SecretFiles[1:], "http://127.0.0.1:9001", webhook.Sync
		other.Webhooks = other.Webhooks[:2]
		if got := NeedsRestart(Diff(c, other)); !slices.Equal(got, []string{"webhooks[0].mode", "webhooks[2]"}) {
			t.Errorf("%q need a restart", got)
		}
	})
}
