package cli

import (
	"testing"

	"github.com/semelhq/semel/internal/rig/redistest"
)

func TestMigrateRedis(t *testing.T) {
	srv := redistest.Start(t, "always")
	srv.Do("SET", "semel:format", "1") // as the version before leaves it
	for _, want := range []string{"made the index of attributes\n", "nothing to do\n"} {
		if code, out, errs := semelWith(t, "", "migrate", "up", "--store", srv.URL()); code != ExitOK || out != want {
			t.Errorf("%q, %q, want %q", out, errs, want)
		}
	}
}
