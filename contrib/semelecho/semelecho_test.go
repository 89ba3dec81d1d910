package semelecho_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/contrib/semelecho"
	"github.com/semelhq/semel/internal/rig/frameworktest"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return e
}

// creating is a handler that makes a row, and then goes on as a test says.
func creating(s *frameworktest.Service, then echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if err := s.Create(c.Request().Context(), c.QueryParam("do"), c.Request().Header.Get("Idempotency-Key")); err != nil {
			return err
		}
		return then(c)
	}
}

func created(c *echo.Context) error { return c.String(http.StatusCreated, "made") }

// Each handler makes a row and then does what is tried. The call is delivered three times.
func TestGuard(t *testing.T) {
	boom := func(*echo.Context) error { panic("boom") }
	around := []echo.MiddlewareFunc{middleware.Recover()}
	replayed := semel.Operation{OnFailure: semel.ReplayFailure}
	silent := func(*echo.Context, error) {}
	db := frameworktest.New(t)
	for _, c := range []struct {
		name           string
		outer, inner   []echo.MiddlewareFunc // around the guard, and between it and the handler
		errors         echo.HTTPErrorHandler // nil: Echo's own
		then           echo.HandlerFunc
		op             semel.Operation
		first, second  string // the second and the third are the same
		rows, rowsInTx int
		told           int
	}{
		{"an answer", around, nil, nil, created, semel.Operation{}, "201 made", "201 made", 1, 1, 0},
		{"a status alone", around, nil, nil, func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }, semel.Operation{}, "204", "204", 1, 1, 0},
		{"an error of HTTP", around, nil, nil, func(*echo.Context) error { return echo.NewHTTPError(422, "too small") }, semel.Operation{}, refused, refused, 1, 0, 0},
		{"any error", around, nil, nil, func(*echo.Context) error { return errors.New("broken") }, replayed, failed, failed, 1, 0, 0},
		{"an error that nobody answers", around, nil, silent, func(*echo.Context) error { return errors.New("broken") }, replayed, "500", "500", 1, 0, 0},
		{"an error after the answer that it is about", around, nil, nil, func(c *echo.Context) error { return errors.Join(c.String(422, "no"), errors.New("no")) }, replayed, "422 no", "422 no", 1, 0, 0},
		{"an error after a success", around, nil, nil, func(c *echo.Context) error { return errors.Join(created(c), errors.New("broken")) }, semel.Operation{}, "500 failed", "409 held", 1, 0, 0},
		{"a panic, and the recoverer around the guard", around, nil, nil, boom, semel.Operation{}, failed, "409 held", 1, 0, 0},
		{"a panic, and the recoverer inside", nil, around, nil, boom, semel.Operation{}, failed, "409 held", 1, 0, 0},
		{"a panic after a success has begun, inside", nil, around, nil, func(c *echo.Context) error { _ = created(c); panic("boom") }, semel.Operation{}, "409 held", "409 held", 1, 0, 0},
		{"nothing, which is Echo's empty 200", around, nil, nil, func(*echo.Context) error { return nil }, semel.Operation{}, "200", "200", 1, 1, 1},
		{"nothing about money", around, nil, nil, func(*echo.Context) error { return nil }, semel.Operation{Financial: true}, "409 held", "409 held", 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, tx := range []bool{false, true} {
				s := db.Service(t, tx)
				c.op.Name = s.Route.Operation.Name
				s.Route.Operation = c.op
				e := newEcho()
				if c.errors != nil {
					e.HTTPErrorHandler = c.errors
				}
				e.Use(c.outer...)
				e.POST("/orders", creating(s, c.then), append([]echo.MiddlewareFunc{semelecho.Guard(s.Guard, s.Route)}, c.inner...)...)
				rows := c.rows
				if tx {
					rows = c.rowsInTx
				}
				s.Thrice(t, e, frameworktest.Want{First: c.first, Again: c.second, Rows: rows, Told: c.told}, say)
			}
		})
	}
}

const (
	refused = `422 {"message":"too small"}`
	failed  = `500 {"message":"Internal Server Error"}`
)

// say shortens an answer.
func say(a frameworktest.Answer) string {
	for _, code := range []string{"held", "failed"} {
		if strings.Contains(a.Body, `"code":"`+code+`"`) {
			a.Body = code
		}
	}
	return strings.TrimSpace(fmt.Sprint(a.Status, " ", a.Body))
}

// What stands around the guard sees what the client gets, also of a replay and a refusal.
func TestWhatIsAroundTheGuard(t *testing.T) {
	s := frameworktest.New(t).Service(t, false)
	var seen []int
	e := newEcho()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			response, unwrapped := echo.UnwrapResponse(c.Response())
			seen = append(seen, response.Status)
			return errors.Join(err, unwrapped)
		}
	})
	e.POST("/orders", creating(s, created), semelecho.Guard(s.Guard, s.Route))
	url, key := s.Serve(e), rand.Text()
	s.Post(t.Context(), url, frameworktest.Make, key)
	s.Post(t.Context(), url, frameworktest.Make, key)
	s.Post(t.Context(), url, frameworktest.Fail, key) // another query
	if got := fmt.Sprint(seen); got != "[201 201 422]" || s.Runs(key) != 1 {
		t.Errorf("around the guard, the statuses were %s; the handler ran %d times", got, s.Runs(key))
	}
}

func TestTransactionsThatMeet(t *testing.T) {
	s := frameworktest.New(t).Service(t, true)
	s.Meet()
	e, key := newEcho(), rand.Text()
	e.POST("/orders", creating(s, created), semelecho.Guard(s.Guard, s.Route))
	if a := s.Post(t.Context(), s.Serve(e), frameworktest.Make, key); say(a) != "201 made" || s.Rows(key) != 1 || s.Runs(key) != 2 {
		t.Errorf("got %+v, %d rows, %d runs", a, s.Rows(key), s.Runs(key))
	}
}

// An error inside a stream breaks it off: its client must not take the part for the whole.
func TestStreams(t *testing.T) {
	s := frameworktest.New(t).Service(t, false)
	e, key := newEcho(), rand.Text()
	e.POST("/orders", creating(s, func(c *echo.Context) error {
		if err := c.String(http.StatusOK, "part"); err != nil {
			return err
		}
		if err := http.NewResponseController(c.Response()).Flush(); err != nil {
			return err
		}
		return errors.New("broken")
	}), semelecho.Guard(s.Guard, s.Route))
	url := s.Serve(e)
	if a := s.Post(t.Context(), url, frameworktest.Make, key); a.Status != 0 {
		t.Errorf("got %+v", a)
	}
	if a := s.Post(t.Context(), url, frameworktest.Make, key); say(a) != "409 held" || s.Runs(key) != 1 {
		t.Errorf("then got %+v", a)
	}
}
