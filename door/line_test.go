package door_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// A client that sends conflicts without end doesn't fill the log with warnings.
func TestRepeatedRefusalsAreOneWarningAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		answered := door.Log(slog.New(slog.NewTextHandler(&out, nil)), slog.LevelInfo).Answered
		for n := range 228 {
			for _, operation := range []string{"pay", "order"} {
				answered(semel.Delivered{Door: "http", Decision: semel.Conflict, Code: semel.CodeConflict, Status: 422, ID: semel.ID{Tenant: "acme", Operation: operation, Key: "k-" + string(rune('a'+n%26))}})
			}
			<-time.After(30 * time.Second / 228)
		}
		answered(semel.Delivered{Door: "http", Decision: semel.Held, Code: semel.CodeHeld, Status: 409, ID: semel.ID{Operation: "pay", Key: "k"}})
		<-time.After(3 * time.Minute)
		synctest.Wait()
		var warnings []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "level=WARN") {
				warnings = append(warnings, line)
			}
		}
		if text := strings.Join(warnings, ""); len(warnings) != 5 || strings.Count(text, "msg=delivery") != 3 || strings.Count(text, `msg="more deliveries refused"`) != 2 || strings.Count(text, "decision=conflict count=227 record=") != 2 {
			t.Errorf("the warnings are:\n%s", text)
		}
		if n := strings.Count(out.String(), "msg=delivery"); n != 2*228+1 {
			t.Errorf("%d deliveries have a line", n)
		}
	})
}
