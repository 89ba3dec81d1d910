package semel

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/semelhq/semel/internal/engine/callctx"
)

// storeCall returns the context for calls to the store, and the one to end afterwards.
// If ctx already is one, it returns ctx and nil, so that several calls share it.
func (e *Engine) storeCall(ctx context.Context) (context.Context, *callctx.Call) {
	if _, ok := ctx.(*callctx.Call); ok {
		return ctx, nil
	}
	c := callctx.NewCall(ctx, e.opts.StoreTimeout)
	return c, c
}

// limited returns ctx with the time limit of a call to the store, for calls that may be
// cancelled with their caller.
func (e *Engine) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.(*callctx.Call); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.opts.StoreTimeout)
}

// guarded calls f, which runs the program's own functions, and turns their panic into an
// error. Unrecovered in a goroutine of ours, it would kill the process, and then every other
// process that picks up the same record. what names the function in the error.
func guarded(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s panicked%s: %v", what, panicPlace(), v)
		}
	}()
	return f()
}

// panicPlace says where the code that is being recovered panicked; empty if that is not
// known. An error with the whole stack would fill logs, because it is repeated.
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
