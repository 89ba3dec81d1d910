package callctx

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

func TestACallOutlivesItsCallerAndNotItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, hangUp := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		c := NewCall(caller, time.Second)
		defer c.End()
		hangUp()
		if c.Err() != nil || c.Value(key{}) != "value" {
			t.Errorf("%v, %v", c.Err(), c.Value(key{}))
		}
		began := time.Now()
		if <-c.Done(); time.Since(began) != time.Second || c.Err() != context.DeadlineExceeded {
			t.Errorf("%v after %v", c.Err(), time.Since(began))
		}
	})
}

func TestTheLimitCountsFromTheFirstQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCall(t.Context(), time.Second)
		<-time.After(time.Minute)
		if at, ok := c.Deadline(); !ok || time.Until(at) != time.Second || c.Err() != nil {
			t.Errorf("%v left, %v", time.Until(at), c.Err())
		}
		if <-time.After(time.Second); c.Err() != context.DeadlineExceeded {
			t.Error(c.Err())
		}
	})
}

func TestAnEndedCallIsCancelled(t *testing.T) {
	c := NewCall(t.Context(), time.Second)
	child, cancel := context.WithCancel(c)
	defer cancel()
	c.End()
	<-c.Done()
	<-child.Done()
	if c.Err() != context.Canceled {
		t.Error(c.Err())
	}
	unasked := NewCall(t.Context(), time.Second)
	if unasked.End(); unasked.Err() != context.Canceled {
		t.Error(unasked.Err())
	}
	var none *Call
	none.End()
}

func TestAHandlerStopsOnce(t *testing.T) {
	lost := errors.New("lost")
	parent, hangUp := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	hangUp(errors.New("the caller is gone"))
	early, late := &Handler{Parent: parent}, &Handler{Parent: parent}
	ctx, cancel := context.WithCancel(early)
	defer cancel()
	for _, h := range []*Handler{early, late} {
		if h.Err() != nil || h.Stopped() || context.Cause(h) != nil || h.Value(key{}) != "value" {
			t.Errorf("before its time: %v, %v", h.Err(), context.Cause(h))
		}
	}
	if late.cancel != nil {
		t.Error("a context was made for nobody who waits")
	}
	for _, h := range []*Handler{early, late} {
		if !h.Stop(lost) || h.Stop(nil) || !h.Stopped() || h.Lost() != lost {
			t.Errorf("stopped by %v", h.Lost())
		}
		if got := context.Cause(h); got != lost || h.Err() != context.Canceled || h.Value(key{}) != "value" {
			t.Errorf("the context has the cause %v, and ends with %v", got, h.Err())
		}
		<-h.Done()
	}
	if <-ctx.Done(); context.Cause(ctx) != lost {
		t.Errorf("a context from before ends with %v", context.Cause(ctx))
	}
}
