package config

import (
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub"
)

func TestActivityPub(t *testing.T) {
	load := func() *Config {
		t.Helper()
		c, _, err := loadCorpus(t, "testdata/good/activitypub.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load()
	t.Run("what is left out is what package activitypub does without it, and follows from other settings", func(t *testing.T) {
		a := c.ActivityPub[0]
		if a.Name != "inbox" || a.Tenant != "social" || a.Evidence != semel.EvidenceDecisions || a.Window != Duration(activitypub.DefaultWindow) ||
			a.Budget != Duration(activitypub.DefaultBudget) || int64(a.MaxBody) != activitypub.DefaultMaxBody {
			t.Errorf("%+v", a)
		}
		if a := c.ActivityPub[1]; a.Tenant != "reports" || a.Evidence != semel.EvidenceDurable {
			t.Errorf("%+v", a)
		}
	})
	t.Run("an inbox gets what the settings say", func(t *testing.T) {
		opts := c.ActivityPub[1].Options()
		want := activitypub.Policies{{Host: "*.bad.example", Refuse: true}, {Host: "proto.example:8443", Unsigned: true}}
		if !slices.Equal(opts.Policies, want) || opts.Window != 30*24*time.Hour || opts.Budget != 250*time.Millisecond || opts.Shared != "/reports/inbox" {
			t.Errorf("%+v", opts)
		}
		for actor, want := range map[string]bool{"triage": true, "alice": false} {
			if is, err := opts.Exists(t.Context(), actor); err != nil || is != want {
				t.Errorf("%s exists: %t, %v", actor, is, err)
			}
		}
		if base, err := c.ActivityPub[1].Base(); err != nil || base.String() != "https://reports.example" {
			t.Errorf("%s, %v", base, err)
		}
	})
	t.Run("what its destination doesn't need takes effect while the service runs", func(t *testing.T) {
		other := load()
		a := &other.ActivityPub[0]
		a.Actors, a.Upstream, a.SharedInbox, a.Timeout, a.Instances = []string{"dave"}, "http://127.0.0.1:9001", "/inbox", 1, []Instance{{Host: "*", Refuse: true}}
		other.ActivityPub = other.ActivityPub[:1]
		if got := NeedsRestart(Diff(c, other)); !slices.Equal(got, []string{"activitypub[0].timeout", "activitypub[1]"}) {
			t.Errorf("%q need a restart", got)
		}
	})
}
