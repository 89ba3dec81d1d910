// Package guard calls the functions of the surrounding program, which may panic or never
// return.
package guard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// Call calls f, which runs the program's own functions, and turns their panics into errors.
// An unrecovered panic in our goroutine would kill the process, and then every other process
// that picks up the same record. what names the function in the error.
func Call(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s panicked%s: %v", what, panicPlace(), v)
		}
	}()
	return f()
}

// Each makes such a call for each item, all at once, and returns their errors together.
func Each[T any](what string, items []T, f func(item T) error) error {
	var work sync.WaitGroup
	errs := make([]error, len(items))
	for i, item := range items {
		work.Go(func() { errs[i] = Call(what, func() error { return f(item) }) })
	}
	work.Wait()
	return errors.Join(errs...)
}

// panicPlace returns where the recovered code panicked; empty if that is unknown. An error with
// the whole stack would fill logs, because it is repeated.
func panicPlace() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for panicking := false; ; {
		at, more := frames.Next()
		switch {
		case strings.HasPrefix(at.Function, "runtime."):
			panicking = panicking || at.Function == "runtime.gopanic"
		case panicking:
			return fmt.Sprintf(" at %s:%d", filepath.Base(at.File), at.Line)
		}
		if !more {
			return ""
		}
	}
}

// Single makes one call at a time: none before the previous one has returned.
type Single struct{ under atomic.Bool }

var errSilent = errors.New("it has not answered an earlier question yet")

// Do calls f in its own goroutine and returns its error, or ctx's if that ends first; f may
// then have done its work.
func (s *Single) Do(ctx context.Context, f func(ctx context.Context) error) error {
	if !s.under.CompareAndSwap(false, true) {
		return errSilent
	}
	answer := make(chan error, 1)
	go func() {
		err := Call("it", func() error { return f(ctx) })
		s.under.Store(false) // before the caller continues, who may call again
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
