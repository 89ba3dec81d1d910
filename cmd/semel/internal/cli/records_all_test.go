package cli

import (
	"strings"
	"testing"
)

// TestRecordsSettleAll gets out of a storm of held calls with one command.
func TestRecordsSettleAll(t *testing.T) {
	store := recordsDir(t)
	held := func() int {
		_, out, _ := records(t, store, "list", "--json", "held")
		return strings.Count(out, "\n")
	}
	before := held()
	if before < 2 {
		t.Fatalf("%d are held", before)
	}
	all := []string{"settle", "--all", "--outcome", "aborted", "--reason", "the gateway was down"}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"without a reason":   {[]string{"settle", "--all", "--outcome", "aborted", "--yes"}, ExitUsage, "--reason is needed"},
		"nobody to ask":      {all, ExitUsage, "--yes"},
		"with one's name":    {append(all, "--key", "held", "--yes"), ExitUsage, "--all takes qualifiers"},
		"a wrong qualifier":  {append(all, "sort:of", "--yes"), ExitUsage, "no such qualifier"},
		"either of two":      {append(all, "operation:none", "OR", "operation:neither", "--yes"), ExitOK, "0 records are changed"},
		"a dry run":          {append(all, "--dry-run"), ExitOK, "records would be"},
		"where nothing is":   {append(all, "operation:none", "--yes"), ExitOK, "0 records are changed"},
		"of the release too": {[]string{"release", "--all", "operation:none", "--reason", "r", "--yes"}, ExitOK, "0 records are changed"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := records(t, store, c.args...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, %s%s", code, out, errs)
			}
			if n := held(); n != before {
				t.Errorf("%d are held, of %d", n, before)
			}
		})
	}
	// One that can't be changed doesn't keep the others from it.
	if code, _, errs := records(t, store, append(all, "--yes")...); code != ExitConflict || strings.Count(errs, "is not registered here") != before {
		t.Errorf("exit %d: %s", code, errs)
	}
	code, out, errs := records(t, store, append(all, "--yes", "--json", "--force")...)
	if code != ExitOK || strings.Count(out, `"action":"settle","done":true`) != before || held() != 0 {
		t.Errorf("exit %d, %d are held: %s%s", code, held(), out, errs)
	}
}
