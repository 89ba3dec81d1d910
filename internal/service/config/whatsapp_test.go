package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/ids/whatsapp"
)

func TestWhatsApp(t *testing.T) {
	load := func() *Config {
		t.Helper()
		c, _, err := loadCorpus(t, "testdata/good/whatsapp.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load()
	w := &c.Commands.WhatsApp
	t.Run("secrets are what is in their files, without white space", func(t *testing.T) {
		verify, app, err := w.Secrets()
		if err != nil || verify != "the verify token" || !slices.Equal(app, []string{"an app secret", "the next app secret"}) {
			t.Errorf("%q, %q, %v", verify, app, err)
		}
		reply, err := ReadSecrets(w.ReplySecretFiles)
		if err != nil || len(reply) != 1 || !strings.HasPrefix(reply[0], "whsec_") {
			t.Errorf("%q, %v", reply, err)
		}
	})
	t.Run("what is left out is the mapper's default and the default tenant", func(t *testing.T) {
		if w.MapperTimeout != Duration(whatsapp.DefaultMapTimeout) || w.Numbers[0].Tenant != "shop" || w.Numbers[1].Tenant != "other" {
			t.Errorf("%+v", w)
		}
	})
	t.Run("all but the path takes effect while the service runs", func(t *testing.T) {
		other := load()
		o := &other.Commands.WhatsApp
		o.Path, o.MapperURL, o.AppSecretFiles = "/hook", "http://127.0.0.1:9004", o.AppSecretFiles[1:]
		diff := Diff(c, other)
		if want := []string{"commands.whatsapp.path", "commands.whatsapp.app_secret_files", "commands.whatsapp.mapper_url"}; !slices.Equal(diff, want) {
			t.Errorf("the difference is %q", diff)
		}
		if got := NeedsRestart(diff); !slices.Equal(got, []string{"commands.whatsapp.path"}) {
			t.Errorf("%q need a restart", got)
		}
	})
	t.Run("the environment alone can turn it on, and must say all of it", func(t *testing.T) {
		_, _, err := Load(Source{Env: func(name string) (string, bool) { return "10s", name == "SEMEL_COMMANDS_WHATSAPP_MAPPER_TIMEOUT" }})
		for _, name := range []string{"path", "verify_token_file", "app_secret_files", "mapper_url", "numbers"} {
			if err == nil || !strings.Contains(err.Error(), "commands.whatsapp."+name+": "+name+" is missing") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
