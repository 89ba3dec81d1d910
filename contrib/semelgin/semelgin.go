// Package semelgin guards handlers of gin with a guard of package semelhttp.
//
// A wrapper that only calls Next inside of a guard runs the handler again for a duplicate: a
// handler of gin answers by its Context's Writer, past the guard, and gin goes on to the next
// handler unless somebody calls Abort.
package semelgin

import (
	"context"
	"errors"
	"net/http"
	"syscall"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// Guard makes the guard of a route a handler of gin, around the handlers that follow it. It
// panics if something is wrong with the route, so make it when the program starts:
//
//	r.Use(gin.Recovery(), authenticate) // each delivery
//	r.POST("/orders", semelgin.Guard(guard, semelhttp.Route{
//		Operation: semel.Operation{Name: "orders.create"},
//	}), answerErrors, create)
//
// A middleware that turns c.Errors into an answer follows the guard, so that this answer is
// recorded. If a middleware around the guard answers errors, the guard drops that answer,
// because duplicates wouldn't get it, and calls Troubled of [semel.Events]. If a handler has
// added an error and nobody inside has answered, the guard answers 500. A panic of a handler
// holds the call, wherever gin.Recovery stands.
//
// Take the context from c.Request.Context(): it has the attempt, or the transaction, and
// doesn't end when the client hangs up.
//
// If the route has Tx and the database rolls a transaction back because of others, the handler
// should run again, which gin can't do with the handlers that follow: the client gets a
// 409 that says that nothing was done, and sends the request again. Where that is frequent, as
// with serializable transactions, give the handlers to Guard instead. They run one after the
// other until one calls Abort, and Next does nothing in them:
//
//	r.POST("/orders", semelgin.Guard(guard, route, create, answerErrors))
func Guard(g *semelhttp.Guard, rt semelhttp.Route, handlers ...gin.HandlerFunc) gin.HandlerFunc {
	h := g.Middleware(rt)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := r.Context().Value(contextKey{}).(*exchange)
		x.runs++
		x.serve(w, r, handlers)
	}))
	return func(c *gin.Context) {
		x := &exchange{c: c}
		h.ServeHTTP(c.Writer, c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, x)))
		c.Abort()
		if x.late != nil {
			c.Writer = &answered{c.Writer, x.late}
		}
	}
}

type contextKey struct{}

// exchange is one request to the guarded handlers.
type exchange struct {
	c    *gin.Context
	runs int                 // in transactions there may be several
	late http.ResponseWriter // the guard's, if the handlers have added errors
}

// serve runs the handlers.
func (x *exchange) serve(w http.ResponseWriter, r *http.Request, handlers []gin.HandlerFunc) {
	c := x.c
	outer, request, errs := c.Writer, c.Request, len(c.Errors)
	inner := &writer{ResponseWriter: w, r: r, status: http.StatusOK, size: -1}
	c.Writer, c.Request = inner, r
	// After a panic as well: a recoverer around the guard answers the caller itself.
	defer func() { c.Writer, c.Request = outer, request }()
	switch {
	case len(handlers) > 0:
		for i := 0; i < len(handlers) && (i == 0 || !c.IsAborted()); i++ {
			handlers[i](c)
		}
	case x.runs > 1:
		semelhttp.Refuted(r.Context(), "the handlers of gin can't run again", semelhttp.RefusalOf(semel.CodeAborted, "Another call was in the way. Everything was rolled back and nothing was done; send the same request again."))
		return
	default:
		c.Next()
	}
	added := c.Errors[errs:]
	if len(added) > 0 {
		x.late = w
	}
	switch {
	case inner.Written() || inner.said:
		inner.WriteHeaderNow() // as gin does in the end
	case len(added) > 0:
		if brokenPipe(added.Last()) {
			semelhttp.Panicked(r.Context())
		}
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
}

// brokenPipe reports whether gin.Recovery adds the error instead of answering: then the
// handler has panicked with it.
func brokenPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, http.ErrAbortHandler)
}
