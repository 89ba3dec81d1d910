package check

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// twice delivers a call, lets something happen, and delivers it again.
type twice struct {
	id, section, as string
	refused         bool // the second delivery may also be refused
	between         func(ctx context.Context, since time.Time) error
}

func (t twice) run(j *judge, ctx context.Context) {
	before := j.effects(ctx, 0)
	c := j.call(t.section)
	a := j.settle(ctx, c)
	if t.between != nil {
		if err := t.between(ctx, a.began); err != nil {
			j.Unseen(t.id, err.Error())
			return
		}
	}
	if t.as != "" {
		c = c.as(j.requests[t.as])
	}
	b := j.deliver(ctx, c)
	if !t.refused {
		b = j.settle(ctx, c)
	}
	if d := a.differs(b); d != "" && !(t.refused && b.refuses()) {
		j.fail(t.id, "the first delivery and a later one differ in %s", d)
		return
	}
	j.once(ctx, t.id, before, a, b)
}

// halfARequest: the client leaves before its request is whole.
func (j *judge) halfARequest(ctx context.Context) {
	before := j.effects(ctx, 0)
	c := j.call("")
	j.deliverCut(ctx, c, inRequest, lingering)
	a := j.settle(ctx, c)
	if j.once(ctx, "gone.half", before, a, j.settle(ctx, c)); !a.OK() {
		j.fail("gone.half", "the whole request gets %s after half of it came", a)
	}
}

// left makes a probe of what the retries of a client get that has left in some way.
func left(at cut, once, freed string) func(j *judge, ctx context.Context) {
	return func(j *judge, ctx context.Context) {
		before := j.effects(ctx, 0)
		c := j.call("slow")
		j.deliverCut(ctx, c, at, lingering)
		a := j.settle(ctx, c)
		fault := a.differs(j.settle(ctx, c))
		if j.later(a) {
			fault = fmt.Sprintf("after %v a retry still gets %s", j.opts.Patience, a)
		}
		j.judge(freed, fault)
		j.once(ctx, once, before, a)
	}
}

// retried makes a probe of the retry of a request that fails.
func retried(id, section string, class int) func(j *judge, ctx context.Context) {
	return func(j *judge, ctx context.Context) {
		before := j.effects(ctx, 0)
		c := j.call(section)
		a, b := j.deliver(ctx, c), j.deliver(ctx, c)
		<-time.After(5 * lingering) // an effect of a failure may be counted late, and none need come
		n := j.effects(ctx, before) - before
		policy, m := map[int]string{4: j.profile.Rejected, 5: j.profile.Failed}[class], j.profile.Marker
		switch {
		case a.Err != nil || a.Status/100 != class:
			j.Unseen(id, fmt.Sprintf("the request '### %s' gets %s, and not %dxx", section, a, class))
		case policy == "fresh" && m != "" && b.Header.Get(m) == "true":
			j.fail(id, "%s is replayed, and the document says that it isn't kept", a)
		case policy != "fresh" && n > 1:
			j.fail(id, "%d effects of one call whose answer was %s", n, a)
		case policy == "kept" && !j.later(b) && a.differs(b) != "":
			j.fail(id, "the retry differs in %s, and the document keeps failures", a.differs(b))
		default:
			j.judge(id, "")
		}
	}
}

// expiry: the answer is there until the window that the service publishes is nearly over.
func (j *judge) expiry(ctx context.Context) {
	if j.opts.Window == 0 {
		j.Unseen("expiry.kept", "say by --window how long the service keeps answers")
		return
	}
	twice{id: "expiry.kept", between: func(ctx context.Context, since time.Time) error {
		select {
		case <-time.After(time.Until(since.Add(j.opts.Window * 9 / 10))):
		case <-ctx.Done():
		}
		return ctx.Err()
	}}.run(j, ctx)
}

// restart kills the service, and starts it again.
func (j *judge) restart(ctx context.Context, _ time.Time) error {
	if j.opts.Restart == nil {
		return errors.New("say by --restart how to kill the service and start it again")
	}
	return j.opts.Restart(ctx)
}

// crash: the service is killed after it has answered, and while a call runs.
func (j *judge) crash(ctx context.Context) {
	twice{id: "crash.kept", between: j.restart}.run(j, ctx)
	j.exchanges = nil
	before := j.effects(ctx, 0)
	c := j.call("slow")
	first := make(chan Answer, 1)
	go func() { first <- j.deliver(ctx, c) }()
	<-time.After(5 * lingering)
	err := j.restart(ctx, time.Now())
	a := <-first
	j.once(ctx, "crash.once", before, a, j.settle(ctx, c))
	if err != nil {
		j.Unseen("crash.once", err.Error())
	}
}
