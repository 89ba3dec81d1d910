package service_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// A store that nobody used for a weekend doesn't follow its clock for an hour, unless an
// operator says so.
func TestAClockThatIsHeldBackIsShownAndAccepted(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "")
	shown := regexp.MustCompile(`\[!\] clock: HELD BACK: the clock went ahead by (60h0m|59h59m5)\S* and .*Noticed \d+s ago, followed in (1h0m0s|59m\d+s) if it lasts; semel store accept-clock`)
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
	if text := ready(); !shown.MatchString(text) {
		t.Errorf("readyz says %s", text)
	}
	logged := func(text string) func() error { return s.logs(regexp.MustCompile(text)) }
	servertest.Eventually(t, "the log says so", logged(`the clock of the store went ahead and isn't followed yet.* by=(60h0m|59h59m5)\S* since=20\S* until=20`))
	if status, _, text := do(t, "POST", s.admin("/v1/accept-clock"), ""); status != 200 || !strings.HasPrefix(text, "accepted: ") {
		t.Errorf("it is accepted with %d: %s", status, text)
	}
	servertest.Eventually(t, "the store follows", func() error {
		if text := ready(); strings.Contains(text, "HELD BACK") {
			return fmt.Errorf("readyz says %s", text)
		}
		return nil
	})
	servertest.Eventually(t, "the log says that, too", logged("the time of the store follows its clock again"))
}

// A clock that was put back is followed by nobody, and everybody can see since when, and how far.
func TestAClockThatWasPutBackIsShown(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "")
	redis.Do("SET", "semel:time", offsetclock.Note{At: store.InstantOf(time.Now().Add(60 * time.Hour))}.String())
	s := start(t, write(t, `store: {url: "`+redis.URL()+`"}`+"\n"))
	status, _, text := do(t, "GET", s.admin("/readyz?verbose"), "")
	if status != 200 || !regexp.MustCompile(`\[!\] clock: the clock was put back by (60h0m|59h59m5)\S*, \d+s ago`).MatchString(text) {
		t.Errorf("readyz is %d: %s", status, text)
	}
	servertest.Eventually(t, "the log says so", s.logs(regexp.MustCompile(`the clock of the store was put back.* by=(60h0m|59h59m5)\S* since=20`)))
}

// logs wants the log to say something.
func (s *running) logs(want *regexp.Regexp) func() error {
	return func() error {
		if !want.MatchString(s.log.String()) {
			return fmt.Errorf("the log has no %q", want)
		}
		return nil
	}
}
