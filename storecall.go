package semel

import "context"

// storeCall is the context of one call to a store, or of several that belong together:
// it has the values of the caller's context, not its cancellation, and a separate time
// limit. So a caller that hangs up doesn't make the result of a write unknown, and a
// store that hangs doesn't block the caller for ever.
type storeCall struct{ context.Context }

// storeCall returns the context for a call to the store: ctx itself if it is one already,
// for several calls, and otherwise a new one.
func (e *Engine) storeCall(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.(storeCall); ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opts.StoreTimeout)
	return storeCall{ctx}, cancel
}

// limited returns ctx with the time limit of a call to the store, for calls that may be
// cancelled with their caller.
func (e *Engine) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.(storeCall); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.opts.StoreTimeout)
}
