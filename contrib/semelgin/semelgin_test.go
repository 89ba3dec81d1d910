package semelgin_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/contrib/semelgin"
	"github.com/semelhq/semel/internal/rig/frameworktest"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	os.Exit(pgtest.Main(m))
}

// answerErrors is the error middleware of gin's documentation: it doesn't look whether
// somebody has answered.
func answerErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 {
		c.JSON(http.StatusUnprocessableEntity, gin.H{"error": c.Errors.Last().Error()})
	}
}

// creating is a handler that makes a row, and then goes on as a test says.
func creating(s *frameworktest.Service, then func(c *gin.Context)) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := s.Create(c.Request.Context(), c.Query("do"), c.GetHeader("Idempotency-Key")); err != nil {
			_ = c.AbortWithError(http.StatusInternalServerError, err)
			return
		}
		then(c)
	}
}

func created(c *gin.Context) { c.String(http.StatusCreated, "made") }

// Each handler makes a row and then does what is tried. The call is delivered three times.
func TestGuard(t *testing.T) {
	boom := func(c *gin.Context) { panic("boom") }
	fails := func(c *gin.Context) { _ = c.Error(frameworktest.ErrRefused) }
	around := []gin.HandlerFunc{gin.Recovery()}
	db := frameworktest.New(t)
	for _, c := range []struct {
		name           string
		outer, inner   []gin.HandlerFunc // around the guard, and between it and the handler
		then           func(c *gin.Context)
		op             semel.Operation
		first, second  string // the second and the third are the same
		rows, rowsInTx int
		told           int
	}{
		{"an answer", around, nil, created, semel.Operation{}, "201 made", "201 made", 1, 1, 0},
		{"a status alone", around, nil, func(c *gin.Context) { c.Status(http.StatusNoContent) }, semel.Operation{}, "204", "204", 1, 1, 0},
		{"an error that is answered inside", around, []gin.HandlerFunc{answerErrors}, fails, semel.Operation{}, "422 " + refused, "422 " + refused, 1, 0, 0},
		{"an error that is answered at once", around, nil, func(c *gin.Context) { _ = c.AbortWithError(http.StatusPaymentRequired, errors.New("no")) }, semel.Operation{Financial: true}, "402", "402", 1, 0, 0},
		{"an error that nobody answers fails", around, nil, fails, semel.Operation{OnFailure: semel.ReplayFailure}, failed, failed, 1, 0, 0},
		{"what is answered outside is dropped", []gin.HandlerFunc{answerErrors}, nil, fails, semel.Operation{OnFailure: semel.ReplayFailure}, failed, failed, 1, 0, 1},
		{"a panic, and the recoverer around the guard", around, nil, boom, semel.Operation{}, "500", held, 1, 0, 0},
		{"a panic, and the recoverer inside", nil, []gin.HandlerFunc{gin.Recovery()}, boom, semel.Operation{}, "500", held, 1, 0, 0},
		{"a panic after a success has begun, inside", nil, []gin.HandlerFunc{gin.Recovery()}, func(c *gin.Context) { created(c); boom(c) }, semel.Operation{}, held, held, 1, 0, 0},
		{"a panic that the recoverer inside doesn't answer", nil, []gin.HandlerFunc{gin.Recovery()}, func(*gin.Context) { panic(fmt.Errorf("bank: %w", syscall.ECONNRESET)) }, semel.Operation{}, failed, held, 1, 0, 0},
		{"nothing, which is gin's empty 200", around, nil, func(*gin.Context) {}, semel.Operation{}, "200", "200", 1, 1, 1},
		{"nothing about money", around, nil, func(*gin.Context) {}, semel.Operation{Financial: true}, held, held, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, tx := range []bool{false, true} {
				s := db.Service(t, tx)
				c.op.Name = s.Route.Operation.Name
				s.Route.Operation = c.op
				r := gin.New()
				r.Use(c.outer...)
				r.POST("/orders", append(append([]gin.HandlerFunc{semelgin.Guard(s.Guard, s.Route)}, c.inner...), creating(s, c.then))...)
				rows := c.rows
				if tx {
					rows = c.rowsInTx
				}
				s.Thrice(t, r, frameworktest.Want{First: c.first, Again: c.second, Rows: rows, Told: c.told}, say)
			}
		})
	}
}

const (
	refused = `{"error":"amount too small"}`
	failed  = "500 Internal Server Error"
	held    = "409 held"
)

// say shortens an answer.
func say(a frameworktest.Answer) string {
	if strings.Contains(a.Body, `"code":"held"`) {
		a.Body = "held"
	}
	return strings.TrimSpace(fmt.Sprint(a.Status, " ", a.Body))
}

// What stands around the guard sees what the client gets, and nothing after the guard runs.
func TestTheRestOfTheChain(t *testing.T) {
	s := frameworktest.New(t).Service(t, false)
	var seen []int
	r := gin.New()
	r.Use(func(c *gin.Context) { c.Next(); seen = append(seen, c.Writer.Status()) })
	r.POST("/orders", semelgin.Guard(s.Guard, s.Route, creating(s, created)), func(*gin.Context) { t.Error("a handler after the guard has run") })
	url, key := s.Serve(r), rand.Text()
	s.Post(t.Context(), url, frameworktest.Make, key)
	s.Post(t.Context(), url, frameworktest.Make, key)
	s.Post(t.Context(), url, frameworktest.Fail, key) // another query
	if got := fmt.Sprint(seen); got != "[201 201 422]" || s.Runs(key) != 1 {
		t.Errorf("around the guard, the statuses were %s; the handler ran %d times", got, s.Runs(key))
	}
}

func TestTransactionsThatMeet(t *testing.T) {
	db := frameworktest.New(t)
	t.Run("the handlers that follow don't run again, and nothing is done", func(t *testing.T) {
		s := db.Service(t, true)
		s.Meet()
		r, key := gin.New(), rand.Text()
		r.POST("/orders", semelgin.Guard(s.Guard, s.Route), creating(s, created))
		url := s.Serve(r)
		if a := s.Post(t.Context(), url, frameworktest.Make, key); a.Status != 409 || !strings.Contains(a.Body, `"code":"aborted"`) || s.Rows(key) != 0 {
			t.Errorf("got %+v, %d rows", a, s.Rows(key))
		}
		if a := s.Post(t.Context(), url, frameworktest.Make, key); say(a) != "201 made" || s.Rows(key) != 1 {
			t.Errorf("then got %+v, %d rows", a, s.Rows(key))
		}
	})
	t.Run("the handlers that are given run again", func(t *testing.T) {
		s := db.Service(t, true)
		s.Meet()
		r, key := gin.New(), rand.Text()
		r.POST("/orders", semelgin.Guard(s.Guard, s.Route, creating(s, created), answerErrors))
		if a := s.Post(t.Context(), s.Serve(r), frameworktest.Make, key); say(a) != "201 made" || s.Rows(key) != 1 || s.Runs(key) != 2 {
			t.Errorf("got %+v, %d rows, %d runs", a, s.Rows(key), s.Runs(key))
		}
	})
	t.Run("the errors of handlers that are given are answered in turn", func(t *testing.T) {
		s := db.Service(t, true)
		r, key := gin.New(), rand.Text()
		r.POST("/orders", semelgin.Guard(s.Guard, s.Route, creating(s, func(c *gin.Context) { _ = c.Error(frameworktest.ErrRefused) }), answerErrors))
		if a := s.Post(t.Context(), s.Serve(r), frameworktest.Make, key); say(a) != "422 "+refused || s.Rows(key) != 0 {
			t.Errorf("got %+v, %d rows", a, s.Rows(key))
		}
	})
}

// A stream goes on to its first caller, and its duplicates learn that it was given. A request
// that isn't guarded is told when its client hangs up.
func TestStreams(t *testing.T) {
	s := frameworktest.New(t).Service(t, false)
	r, key := gin.New(), rand.Text()
	gone := make(chan bool, 1)
	guarded := r.Group("/orders", semelgin.Guard(s.Guard, s.Route))
	guarded.POST("", creating(s, func(c *gin.Context) {
		c.Stream(func(w io.Writer) bool { fmt.Fprint(w, "part"); return c.Writer.Size() < 8 })
	}))
	guarded.GET("", func(c *gin.Context) {
		c.Writer.WriteHeaderNow()
		c.Writer.Flush()
		gone <- <-c.Writer.CloseNotify()
	})
	url := s.Serve(r)
	if a := s.Post(t.Context(), url, frameworktest.Make, key); say(a) != "200 partpart" {
		t.Errorf("got %+v", a)
	}
	if a := s.Post(t.Context(), url, frameworktest.Make, key); a.Status != http.StatusGone || s.Runs(key) != 1 {
		t.Errorf("then got %+v", a)
	}
	resp, err := http.Get(url + "/orders")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() // hangs up
	if !<-gone {
		t.Error("wasn't told")
	}
}
