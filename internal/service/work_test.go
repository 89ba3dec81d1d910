package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntilStopped(t *testing.T) {
	errWork := errors.New("the work failed")
	after := func(d time.Duration) func() error {
		return func() error {
			<-time.After(d)
			return errWork
		}
	}
	for _, test := range []struct {
		name string
		work func() error
		want error
		took time.Duration
	}{
		{"work that ends is waited for", after(time.Second), errWork, time.Second},
		{"so is work that ends soon after the stop", after(time.Minute + settleTime - 1), errWork, time.Minute + settleTime - 1},
		{"work that does not is given up", after(time.Hour), context.DeadlineExceeded, time.Minute + settleTime},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				if err := untilStopped(ctx, test.work); !errors.Is(err, test.want) || time.Since(start) != test.took {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				<-time.After(time.Hour) // what was given up ends
			})
		})
	}
	t.Run("work that panics is an error", func(t *testing.T) {
		if err := untilStopped(t.Context(), func() error { panic("boom") }); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Error(err)
		}
	})
}
