package check

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// judge is one run.
type judge struct {
	opts      Options
	profile   *profile
	requests  map[string]request
	base      *url.URL
	transport *http.Transport
	began     time.Time
	bare      bool // the service refuses keys in quotes
	distinct  bool // answers tell calls apart
	counted   bool // effects can be counted
	provider  *provider

	mu        sync.Mutex
	exchanges []Exchange // of the current probe
	verdicts  map[string]*Verdict
}

// Probe judges requirements, with a transcript of its own.
type Probe struct {
	IDs     string // without their group
	Section string // the request that it needs
	Run     func(j *judge, ctx context.Context)
}

// Group is a question, with the groups without which its answer means nothing.
type Group struct {
	Name   string
	Needs  []string
	Probes []Probe
}

var groups = []Group{
	{"replay", nil, []Probe{{"first", "", (*judge).first}, {"once same marked", "", (*judge).replay}}},
	{"conflict", []string{"replay"}, []Probe{{"refused status kept", "other", (*judge).conflict}}},
	{"in-flight", []string{"replay"}, []Probe{{"once answer status", "", (*judge).whileRunning}}},
	{"callers", []string{"replay"}, []Probe{{"other", "other caller", another("callers.other", "other caller")}, {"renewed", "renewed", twice{id: "callers.renewed", as: "renewed", refused: true}.run}}},
	{"scope", []string{"replay"}, []Probe{{"path", "elsewhere", another("scope.path", "elsewhere")}, {"query", "query", another("scope.query", "query")}}},
	{"keys", []string{"replay"}, []Probe{{"missing", "", (*judge).missingKey}, {"malformed two", "", (*judge).oddKeys}, {"long", "", (*judge).longKeys}}},
	{"gone", []string{"replay", "in-flight"}, []Probe{{"half", "", (*judge).halfARequest}, {"reset freed", "", left(afterRequest, "gone.reset", "gone.freed")}, {"closed answered", "", left(halfClosed, "gone.closed", "gone.answered")}}},
	{"storm", []string{"replay", "in-flight"}, []Probe{{"once answers", "", (*judge).storm}, {"history", "", (*judge).history}}},
	{"failures", []string{"replay"}, []Probe{{"rejected", "rejected", retried("failures.rejected", "rejected", 4)}, {"failed", "failing", retried("failures.failed", "failing", 5)}}},
	{"expiry", []string{"replay"}, []Probe{{"kept", "", (*judge).expiry}}},
	{"answers", []string{"replay"}, []Probe{{"big", "big", twice{id: "answers.big", section: "big", refused: true}.run}, {"streamed", "streamed", twice{id: "answers.streamed", section: "streamed", refused: true}.run}}},
	{"crash", []string{"replay", "gone"}, []Probe{{"kept once", "", (*judge).crash}}},
}

// all judges groups, in their order.
func (j *judge) all(ctx context.Context, groups []Group) (*Report, error) {
	for _, g := range groups {
		j.run(ctx, g)
	}
	return j.report(groups), ctx.Err()
}

// run judges a group. What no probe has judged wasn't observed.
func (j *judge) run(ctx context.Context, g Group) {
	if j.opts.Began != nil {
		j.opts.Began(g.Name)
	}
	red := slices.IndexFunc(g.Needs, func(need string) bool { return j.state(need) == Red })
	for _, p := range g.Probes {
		why := "another requirement is broken"
		_, given := j.requests[p.Section]
		switch {
		case red >= 0:
			why = "not tried, because " + g.Needs[red] + " is red"
		case !given:
			why = "add a request '### " + p.Section + "' " + Sections[p.Section]
		default:
			j.exchanges = nil
			p.Run(j, ctx)
		}
		for id := range strings.FieldsSeq(p.IDs) {
			if j.verdicts[g.Name+"."+id] == nil {
				j.Unseen(g.Name+"."+id, why)
			}
		}
	}
}

// judge records a fault of a requirement; without one the service keeps it.
func (j *judge) judge(id, fault string) {
	outcome := Kept
	switch {
	case fault != "" && j.profile.byID[id].Level == "should":
		outcome = Advised
	case fault != "":
		outcome = Broken
	}
	j.put(id, outcome, fault)
}

// fail records a fault.
func (j *judge) fail(id, saw string, args ...any) { j.judge(id, fmt.Sprintf(saw, args...)) }

// Unseen records that a requirement can't be judged, and why.
func (j *judge) Unseen(id, why string) { j.put(id, Unseen, why) }

func (j *judge) put(id string, outcome Outcome, saw string) {
	r := j.profile.byID[id]
	group, _, _ := strings.Cut(id, ".")
	if r.On == "" {
		outcome, saw = Unseen, "the document says nothing about it"
	}
	v := &Verdict{ID: id, Group: group, Outcome: outcome, Text: r.Text, Level: cmp.Or(r.Level, "must"), Rests: r.On, Saw: saw}
	j.mu.Lock()
	defer j.mu.Unlock()
	if outcome == Broken || outcome == Advised {
		slices.SortStableFunc(j.exchanges, func(a, b Exchange) int { return cmp.Compare(a.At, b.At) })
		v.Transcript = slices.Clone(j.exchanges[:min(len(j.exchanges), shown)])
		v.Reproduce = reproduction(v.Transcript)
	}
	j.verdicts[id] = v
}

// effect judges a requirement about effects, if they can be counted or answers tell calls apart.
func (j *judge) effect(id, fault string) {
	if !j.counted && !j.distinct {
		j.Unseen(id, "all answers are alike, and there is no --count")
		return
	}
	j.judge(id, fault)
}

// once judges that a call had one effect since there were so many, or none if no delivery succeeded:
// by the count, and by its answers, if those tell calls apart.
func (j *judge) once(ctx context.Context, id string, since int, answers ...Answer) {
	fault := ""
	answers = slices.DeleteFunc(answers, func(a Answer) bool { return !a.OK() })
	for i := range answers {
		if d := answers[0].differs(answers[i]); d != "" && j.distinct {
			fault = "two deliveries of one call succeed, and differ in " + d
		}
	}
	want := min(len(answers), 1)
	if n := j.effects(ctx, since+want) - since; j.counted && (n > 1 || n < want) {
		fault = fmt.Sprintf("%d effects of one call, of which %d deliveries succeed", n, len(answers))
	}
	j.effect(id, fault)
}
