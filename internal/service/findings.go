package service

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// away makes one finding of a store that doesn't answer: why, since when, and how many checks
// wait for it. What they read earlier says nothing now, and their errors have the same cause.
func (s *Server) away(checks []Finding) []Finding {
	s.awaySince.CompareAndSwap(0, time.Now().Unix())
	why, all := inWords(s.storeName, checks[1].Err), len(checks)
	checks = slices.DeleteFunc(checks, func(c Finding) bool {
		if c.Name == "writes" && c.Err != nil && errors.Unwrap(c.Err) == nil {
			why = c.Err.Error() // it hangs, which says more
		}
		return slices.Contains([]string{"held", "durability", "sweeps", "writes"}, c.Name) || c.Name == "evidence" && !c.Amiss
	})
	since := time.Unix(s.awaySince.Load(), 0).UTC().Format("15:04 UTC")
	checks[1].Err = fmt.Errorf("%s, since %s (%d checks wait for it)", why, since, all-len(checks))
	return checks
}

// inWords says on one line why the store with a URL doesn't answer.
func inWords(address string, err error) string {
	who := "the store"
	if u, bad := url.Parse(address); bad == nil && u.Host != "" {
		who = "PostgreSQL at " + u.Host
		if strings.HasPrefix(u.Scheme, "redis") {
			who = "Redis at " + u.Host
		}
	}
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "semel: "+string(semel.CodeStoreUnavailable)+": ")
	for cause, says := range map[string]string{"connection refused": "refuses connections", "context deadline exceeded": "doesn't answer", "no such host": "isn't found: no address has that name"} {
		if strings.HasSuffix(text, ": "+cause) || text == cause {
			return who + " " + says
		}
	}
	return who + ": " + text
}
