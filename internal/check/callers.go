package check

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// another makes a probe that delivers a call, and then the same key as another request, which may
// have an effect of its own, but doesn't get the answer of the first.
func another(id, section string) func(j *judge, ctx context.Context) {
	return func(j *judge, ctx context.Context) {
		before := j.effects(ctx, 0)
		c := j.call("")
		first, second := j.settle(ctx, c), j.deliver(ctx, c.as(j.requests[section]))
		fault := ""
		j.effects(ctx, before+1) // so that the next probe doesn't count it
		if second.OK() && j.effects(ctx, before+2)-before < 2 && first.differs(second) == "" {
			fault = "it gets the answer to the first request, " + second.String()
		}
		j.effect(id, fault)
		if section == "other caller" && (second.Status == http.StatusUnauthorized || second.Status == http.StatusForbidden) {
			j.Unseen(id, "the other credential is refused: add a request '### other caller' with a good one")
		}
	}
}

// missingKey: a request without a key.
func (j *judge) missingKey(ctx context.Context) {
	before := j.effects(ctx, 0)
	c := j.call("")
	c.lines = []string{}
	a := j.deliver(ctx, c)
	fault := ""
	switch want := j.profile.Missing; {
	case a.Err != nil, a.Status >= 500, want == "run" && a.refuses():
		fault = "it gets " + a.String()
	case want == "refuse" && !a.refuses():
		fault = "it is executed, and gets " + a.String()
	case a.OK():
		j.effects(ctx, before+1) // so that the next probe doesn't count it
	}
	j.judge("keys.missing", fault)
}

// oddKeys: a request with an unreadable key is refused or has one effect, but it never
// passes for one without a key.
func (j *judge) oddKeys(ctx context.Context) {
	for id, lines := range map[string][]string{"keys.malformed": {`"` + j.call("").key}, "keys.two": {`"` + j.call("").key + `"`, `"` + j.call("").key + `"`}} {
		j.exchanges = nil
		before := j.effects(ctx, 0)
		c := j.call("")
		c.lines = lines
		a, b := j.deliver(ctx, c), j.deliver(ctx, c)
		j.once(ctx, id, before, a, b)
		if a.refuses() && b.refuses() && j.effects(ctx, before) > before {
			j.fail(id, "it is refused with %s, and has had an effect", a)
		}
	}
}

// longKeys: two long keys that differ at their end only.
func (j *judge) longKeys(ctx context.Context) {
	before := j.effects(ctx, 0)
	c, d := j.call(""), j.call("")
	long := strings.Repeat(c.key, 8)
	c.key, d.key = long+"a", long+"b"
	a, b := j.deliver(ctx, c), j.deliver(ctx, d)
	fault := ""
	if !(a.refuses() && b.refuses()) && (j.counted && j.effects(ctx, before+2)-before != 2 || a.differs(b) == "") {
		fault = fmt.Sprintf("two calls whose keys of %d characters differ in the last one get %s and %s, and not two effects", len(c.key), a, b)
	}
	j.effect("keys.long", fault)
}
