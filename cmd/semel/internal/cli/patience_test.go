package cli

import (
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Who waits for a service is told once that it doesn't answer, and not after it has.
func TestPeopleAreToldOfASilentService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(on bool, script func(wrote, answered, stop func())) string {
			var told strings.Builder
			ctx, stop := patient(t.Context(), &told, on)
			trace := httptrace.ContextClientTrace(ctx)
			if !on {
				if trace != nil {
					t.Error("a script is told")
				}
				return ""
			}
			script(func() { trace.WroteRequest(httptrace.WroteRequestInfo{}) }, trace.GotFirstResponseByte, stop)
			<-time.After(2 * patience)
			synctest.Wait()
			return told.String()
		}
		ask(false, nil)
		if got := ask(true, func(wrote, answered, _ func()) {
			wrote()
			<-time.After(patience / 2)
			answered()
			wrote()
			answered()
		}); got != "" {
			t.Errorf("after answers: %s", got)
		}
		if got := ask(true, func(wrote, _, _ func()) {
			wrote()
			<-time.After(2 * patience)
			wrote()
		}); strings.Count(got, "no answer") != 1 {
			t.Errorf("without an answer: %s", got)
		}
		if got := ask(true, func(wrote, _, stop func()) {
			wrote()
			stop()
		}); got != "" {
			t.Errorf("after the end: %s", got)
		}
	})
}
