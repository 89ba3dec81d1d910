package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

const (
	// searchTime bounds each search for records that wait for somebody: in a large store
	// it may not end.
	searchTime = 5 * time.Second
	// maxParked is how many parked messages are counted.
	maxParked = 100
	// evidenceLate is from when on a log without a new checkpoint is late. A service signs
	// every second by default.
	evidenceLate = time.Minute
)

// Asked is a running service.
type Asked struct {
	Service *admin.Service
	Records client.Records
	// Where are the flags by which commands find it, with a space in front.
	Where string
	// Version is that of this program.
	Version string
}

// Findings are those of the service. If it isn't there, that is the only one.
func (a *Asked) Findings(ctx context.Context) []Finding {
	url := a.Service.URL()
	checks, err := a.Service.Ready(ctx)
	if err != nil {
		next := "semel serve"
		if _, other := errors.AsType[*client.AnswerError](err); other {
			next = "semel healthcheck" + a.Where
		}
		return []Finding{{"service", Failed, url + ": " + text(err), next}}
	}
	all := []Finding{{"service", OK, url + " answers", ""}}
	figures, err := a.Service.Figures(ctx, 5*time.Minute)
	entitled := err == nil
	all = append(all, a.access(ctx, err))
	for _, c := range checks {
		if c.Name != "serving" || c.Mark != '+' {
			all = append(all, a.readiness(c, entitled))
		}
	}
	if !entitled {
		return all
	}
	gauges, err := a.Service.Gauges(ctx)
	if err != nil {
		return append(all, Finding{"metrics", Failed, text(err), "semel healthcheck" + a.Where})
	}
	if late := time.Duration(gauges["semel_evidence_lag_seconds"] * float64(time.Second)); late > evidenceLate {
		all = append(all, Finding{"evidence", Warning, fmt.Sprintf("entries have waited %v for a signed checkpoint", late.Round(time.Second)), "semel healthcheck" + a.Where})
	}
	waiting, known := heldIn(ctx, a.Records, a.Where)
	strangers := strangersIn(ctx, a.Records, a.Where)
	if open, ok := gauges.Attempts(); ok && !known { // what the node has counted is some seconds old
		waiting = held(open.Held, "", open.OldestHeld, a.Where)
	}
	return append(all, waiting, strangers, parkedIn(ctx, a.Records, a.Where), a.version(gauges.Version(), figures.Nodes))
}

// access says whether the caller may see what operators see, and whether everybody may.
func (a *Asked) access(ctx context.Context, err error) Finding {
	if e, ok := errors.AsType[*semel.Error](err); ok && (e.Code == door.CodeUnauthorized || e.Code == semel.CodeForbidden) {
		return Finding{"access", Warning, e.Message + "; without it not much is known", "semel doctor" + a.withToken()}
	}
	if err != nil {
		return Finding{"access", Failed, text(err), "semel healthcheck" + a.Where}
	}
	if _, err := a.Service.Anonymous().Figures(ctx, 5*time.Minute); err == nil {
		return Finding{"access", Warning, "no operator is named, so every program on that machine is an admin: set admin.token_file, or give a caller in auth a role", "semel config explain admin.token_file"}
	}
	return Finding{"access", OK, "operators need a credential, and this one is accepted", ""}
}

// namesToken are the flags that say which token a command has, or name a service that has one.
var namesToken = regexp.MustCompile(` --(token-file|context) \S+`)

// withToken are the flags for a command that has another token.
func (a *Asked) withToken() string {
	where := namesToken.ReplaceAllString(a.Where, "")
	if where == "" && a.Where != "" {
		where = " --url " + a.Service.URL()
	}
	return where + " --token-file FILE"
}

// readiness is a check that the service has made of itself.
func (a *Asked) readiness(c admin.Check, entitled bool) Finding {
	f := Finding{Check: c.Name, Status: OK, Detail: c.Detail}
	switch c.Mark {
	case '!':
		f.Status = Warning
	case '-':
		f.Status = Failed
	}
	switch {
	case f.Detail != "":
	case f.Status == OK:
		f.Detail = "nothing to report"
	case !entitled:
		f.Detail = "only callers with a role are told why"
	}
	if f.Status != OK {
		f.Next = nextFor(c.Name, a.Where)
	}
	return f
}

// nextFor is what to type where a check of readiness isn't well.
func nextFor(check, where string) string {
	switch check {
	case "clock":
		return "date; semel store accept-clock" + where + " --yes"
	case "disk":
		return "df -h"
	case "evidence":
		return "semel evidence verify" + where + " --keys evidence.pub"
	}
	return "semel healthcheck" + where
}

// version compares the program that runs the node with this one.
func (a *Asked) version(theirs string, nodes int) Finding {
	detail := fmt.Sprintf("the node runs %s; %s in the store's figures, those that have ended included", theirs, plural(nodes, "node"))
	if theirs != a.Version {
		return Finding{"version", Warning, detail + "; this program is " + a.Version, "semel version"}
	}
	return Finding{"version", OK, detail, ""}
}

func held(n int, more string, oldest time.Duration, where string) Finding {
	if n == 0 {
		return Finding{"held", OK, "no call is held", ""}
	}
	return Finding{
		"held", Warning, fmt.Sprintf("%s%s held, the oldest for %v: retries are refused until somebody settles it", plural(n, "call"), more, oldest.Round(time.Second)),
		"semel records list" + where + " held -unverified",
	}
}

// strangersIn counts the records that are held for callers whom nobody verified. Strangers
// can cause them, so they are no reason to complain.
func strangersIn(ctx context.Context, recs client.Records, where string) Finding {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	const list = " held unverified"
	page, err := recs.Search(ctx, store.Query{Held: true, Unverified: true, Limit: store.MaxSearchLimit})
	switch n := len(page.Records); {
	case err != nil:
		return unknown("held-unverified", err, "semel records list"+where+list)
	case n == 0 && page.Next != "":
		return Finding{"held-unverified", OK, "none of the newest calls is held for callers whom nobody verified", ""}
	case n == 0:
		return Finding{"held-unverified", OK, "no call is held for callers whom nobody verified", ""}
	case page.Next != "":
		return Finding{"held-unverified", OK, fmt.Sprintf("%s or more are held for callers whom nobody verified: semel records list%s%s", plural(n, "call"), where, list), ""}
	default:
		return Finding{"held-unverified", OK, fmt.Sprintf("%s held for callers whom nobody verified: semel records list%s%s", plural(n, "call"), where, list), ""}
	}
}

// heldIn looks for held records of the other callers, and reports whether it came to an end.
func heldIn(ctx context.Context, recs client.Records, where string) (_ Finding, known bool) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	page, err := recs.Search(ctx, store.Query{Held: true, Not: []store.Query{{Unverified: true}}, Limit: store.MaxSearchLimit})
	if err != nil {
		return unknown("held", err, "semel records list"+where+" held -unverified"), false
	}
	oldest, more := time.Duration(0), ""
	for i := range page.Records {
		oldest = max(oldest, time.Since(page.Records[i].StartedAt.Time()))
	}
	if page.Next != "" {
		more = " or more are"
	}
	if page.Next != "" && len(page.Records) == 0 {
		return Finding{"held", OK, "none of the newest calls is held", ""}, false
	}
	return held(len(page.Records), more, oldest, where), true
}

// parkedIn looks for messages that are not delivered any more.
func parkedIn(ctx context.Context, recs client.Records, where string) Finding {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	next := "semel messages list" + where + " --state parked"
	n, more := 0, ""
	for _, err := range dispatch.Find(ctx, recs, dispatch.Query{States: []store.MessageState{store.MessageParked}}) {
		if err != nil && n == 0 {
			return unknown("messages", err, next)
		}
		if err != nil || n == maxParked {
			more = " or more are"
			break
		}
		n++
	}
	if n == 0 {
		return Finding{"messages", OK, "no message is parked", ""}
	}
	return Finding{"messages", Warning, fmt.Sprintf("%s%s parked: not delivered before somebody replays it", plural(n, "message"), more), next}
}

// text is an error without the name of the program in front.
func text(err error) string { return strings.TrimPrefix(err.Error(), "semel: ") }

// unknown is a check that came to no end.
func unknown(check string, err error, next string) Finding {
	if errors.Is(err, context.DeadlineExceeded) {
		return Finding{check, Warning, fmt.Sprintf("not known: there are too many records to look through in %v", searchTime), next}
	}
	return Finding{check, Warning, "not known: " + text(err), next}
}
