package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/store"
)

// A store that nobody used for a weekend doesn't follow its clock for an hour, unless an
// operator says so.
func TestAClockThatIsHeldBackIsShownAndAccepted(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "")
	friday := store.InstantOf(time.Now().Add(-60 * time.Hour))
	redis.Do("SET", "semel:time", offsetclock.Note{At: friday}.String())
	s := start(t, write(t, `store: {url: "`+redis.URL()+`"}`+"\n"))
	ready := func() string {
		t.Helper()
		status, _, text := do(t, "GET", s.admin("/readyz?verbose"), "")
		if status != 200 {
			t.Errorf("readyz is %d: %s", status, text)
		}
		return text
	}
	if text := ready(); !strings.Contains(text, "[+] clock ok: HELD BACK: the clock went ahead by 60h0m") || !strings.Contains(text, "semel store accept-clock") {
		t.Errorf("readyz says %s", text)
	}
	logged := func(text string) func() error {
		return func() error {
			if !strings.Contains(s.log.String(), text) {
				return fmt.Errorf("the log has no %q", text)
			}
			return nil
		}
	}
	redistest.Eventually(t, "the log says so", logged("the clock of the store went ahead and isn't followed yet"))
	if status, _, text := do(t, "POST", s.admin("/v1/accept-clock"), ""); status != 200 || !strings.HasPrefix(text, "accepted: ") {
		t.Errorf("it is accepted with %d: %s", status, text)
	}
	redistest.Eventually(t, "the store follows", func() error {
		if text := ready(); strings.Contains(text, "HELD BACK") {
			return fmt.Errorf("readyz says %s", text)
		}
		return nil
	})
	redistest.Eventually(t, "the log says that, too", logged("the time of the store follows its clock again"))
}
