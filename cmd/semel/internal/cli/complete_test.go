package cli

import (
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"records list st":             "state: :6",
		"records list held":           "held :6",
		"records list created":        "created< created> :6",
		"records list state:a":        "state:aborted state:abandoned :4",
		"records list -state:h":       "-state:held :4",
		"messages list stat":          "state: :6",
		"records settle --outcome re": "completed rejected failed aborted :4",
		"records list --only st":      "stuck repeated restored :4",
		"serve --config x":            "yaml yml :8",
	} {
		code, out, errs := semelWith(t, "", append([]string{"__complete"}, strings.Fields(args)...)...)
		if got := strings.Join(strings.Fields(out), " "); code != ExitOK || got != want {
			t.Errorf("%s: exit %d, %s; want %s\n%s", args, code, got, want, errs)
		}
	}
}
