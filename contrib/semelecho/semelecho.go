// Package semelecho guards handlers of Echo v5 with a guard of package semelhttp.
//
// echo.WrapMiddleware doesn't do for a guard: a handler of Echo returns its error, and Echo
// answers it when all middleware has returned, so the guard would record an empty 200.
package semelecho

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// Guard makes the guard of a route a middleware of Echo. It panics if something is wrong
// with the route, so make it when the program starts:
//
//	e.Use(middleware.Recover(), authenticate) // each delivery
//	e.POST("/orders", create, semelecho.Guard(guard, semelhttp.Route{
//		Operation: semel.Operation{Name: "orders.create"},
//	}))
//
// An error that the handler returns is answered by the HTTPErrorHandler inside of the guard, so
// that this answer is recorded. An error that comes after the handler has begun a success
// proves that it failed: in a transaction everything is rolled back, and elsewhere the call is
// held, because nobody knows how much of the work is done. A panic of the handler holds the
// call, too, wherever middleware.Recover stands, as long as it keeps the stack; see
// middleware.RecoverConfig.DisablePrintStack.
//
// Take the context from c.Request().Context(): it has the attempt, or the transaction, and
// doesn't end when the client hangs up.
func Guard(g *semelhttp.Guard, rt semelhttp.Route) echo.MiddlewareFunc {
	guarded := g.Middleware(rt)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		h := guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			run := exchange{c: r.Context().Value(contextKey{}).(*echo.Context), w: w, r: r, tx: rt.Tx != nil}
			run.serve(next)
		}))
		return func(c *echo.Context) error {
			r := c.Request()
			h.ServeHTTP(c.Response(), r.WithContext(context.WithValue(r.Context(), contextKey{}, c)))
			return nil
		}
	}
}

type contextKey struct{}

// exchange is one run of a guarded handler. In transactions there may be several of one
// request.
type exchange struct {
	c  *echo.Context
	w  http.ResponseWriter // the guard's
	r  *http.Request
	tx bool
}

// serve runs the handler, and has its error answered.
func (x *exchange) serve(next echo.HandlerFunc) {
	c, outer, request := x.c, x.c.Response(), x.c.Request()
	answer := echo.NewResponse(x.w, c.Logger())
	c.SetRequest(x.r)
	c.SetResponse(answer)
	// After a panic as well: a recoverer around the guard answers the caller itself.
	defer func() {
		c.SetRequest(request)
		c.SetResponse(outer)
	}()
	err := next(c)
	if err == nil {
		return
	}
	if _, ok := errors.AsType[*middleware.PanicStackError](err); ok {
		semelhttp.Panicked(x.r.Context())
	} else if answer.Committed && answer.Status < http.StatusBadRequest {
		x.failed()
		return
	}
	if c.Echo().HTTPErrorHandler(c, err); !answer.Committed {
		answer.WriteHeader(http.StatusInternalServerError) // an error is never an empty 200
	}
}

// failed says that the handler has failed, whatever it has begun to answer.
func (x *exchange) failed() {
	const why = "the handler returned an error after it had begun a success"
	refusal := semelhttp.Refusal{Status: http.StatusInternalServerError, Code: semel.CodeFailed, Title: "Failed"}
	if x.tx {
		refusal.Detail = "The handler failed. Everything was rolled back and nothing was done; send the same request again."
		semelhttp.Refuted(x.r.Context(), why, refusal)
		return
	}
	refusal.Detail = "The handler failed after it had begun its answer, and nobody knows what was done."
	semelhttp.Silent(x.r.Context(), why, refusal)
}
