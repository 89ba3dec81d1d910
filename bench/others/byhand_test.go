package others

import (
	"bytes"
	"io"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
)

// answers are what the look-ups of programs keep, by key. A snippet of this kind looks before
// the handler, and writes after it.
var answers sync.Map

// answer is what they keep.
type answer struct {
	status int
	body   []byte
}

// serveEcho has the form of https://echo.labstack.com/docs/middleware/body-dump, and of a
// middleware of one's own by https://echo.labstack.com/docs/middleware.
func serveEcho() {
	e := echo.New()
	e.Use(middleware.BodyDump(func(c *echo.Context, _, body []byte, _ error) {
		if key := c.Request().Header.Get("Idempotency-Key"); key != "" {
			status := http.StatusOK
			if r, err := echo.UnwrapResponse(c.Response()); err == nil {
				status = r.Status
			}
			answers.Store(key, answer{status, bytes.Clone(body)})
		}
	}))
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if a, ok := answers.Load(c.Request().Header.Get("Idempotency-Key")); ok {
				return c.Blob(a.(answer).status, "application/json", a.(answer).body)
			}
			return next(c)
		}
	})
	handle := func(c *echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		status, text := sale(string(body))
		return c.Blob(status, "application/json", []byte(text))
	}
	e.POST("/charges", handle)
	e.POST("/refunds", handle)
	must(http.Serve(listen(), e))
}

// recorder is gin's writer, with the body held back until the answer is kept.
type recorder struct {
	gin.ResponseWriter
	body bytes.Buffer
}

// Write keeps bytes.
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// serveGin has the form of https://gin-gonic.com/en/docs/middleware/custom-middleware/.
func serveGin() {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.Use(func(c *gin.Context) {
		key := c.GetHeader("Idempotency-Key")
		if a, ok := answers.Load(key); ok {
			c.Data(a.(answer).status, "application/json", a.(answer).body)
			c.Abort()
			return
		}
		r := &recorder{ResponseWriter: c.Writer}
		c.Writer = r
		c.Next()
		if key != "" {
			answers.Store(key, answer{r.Status(), r.body.Bytes()})
		}
		_, _ = r.ResponseWriter.Write(r.body.Bytes())
	})
	handle := func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			return // the request broke off
		}
		status, text := sale(string(body))
		c.Data(status, "application/json", []byte(text))
	}
	g.POST("/charges", handle)
	g.POST("/refunds", handle)
	must(http.Serve(listen(), g))
}
