package config

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/dispatch"
)

func TestDispatch(t *testing.T) {
	c, _, err := loadCorpus(t, "testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("what is left out is what the dispatcher does by itself", func(t *testing.T) {
		want := Destination{
			Name: "local", URL: "http://127.0.0.1:9002", Operations: []string{"*"}, AllowPrivate: true,
			Timeout: Duration(dispatch.DefaultTimeout), Concurrency: dispatch.DefaultConcurrency,
			MinBackoff: Duration(dispatch.DefaultMinBackoff), MaxBackoff: Duration(dispatch.DefaultMaxBackoff),
			MaxTries: dispatch.DefaultMaxTries, MaxAge: Duration(dispatch.DefaultMaxAge),
		}
		if got := c.Dispatch.Destinations[1]; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	})
	t.Run("secrets are what is in their files, without white space", func(t *testing.T) {
		secrets, err := ReadSecrets(c.Dispatch.Destinations[0].SecretFiles)
		if err != nil || len(secrets) != 2 || secrets[0] != "whsec_c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M=" || secrets[1] == secrets[0] {
			t.Errorf("%q, %v", secrets, err)
		}
	})
	t.Run("a change takes effect at the next start", func(t *testing.T) {
		other, _, err := loadCorpus(t, "testdata/good/full.yaml")
		if err != nil {
			t.Fatal(err)
		}
		other.Dispatch.Destinations[0].Timeout += Duration(time.Second)
		other.Dispatch.Destinations = append(other.Dispatch.Destinations, Destination{Name: "new"})
		want := []string{"dispatch.destinations[0].timeout", "dispatch.destinations[2]"}
		if got := NeedsRestart(Diff(c, other)); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
