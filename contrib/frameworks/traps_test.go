package frameworks

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/frameworktest"
)

// TestTraps: wirings that look right and aren't. No guard can mend them, because the answer
// goes past it; but somebody is told when the first call runs.
func TestTraps(t *testing.T) {
	db := frameworktest.New(t)
	for name, trap := range map[string]func(*frameworktest.Service) string{
		"a wrapper of gin that calls Next": func(s *frameworktest.Service) string {
			r := gin.New()
			r.POST("/orders", func(c *gin.Context) {
				s.Guard.Handler(s.Route, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					c.Request = r
					c.Next()
				})).ServeHTTP(c.Writer, c.Request)
			}, func(c *gin.Context) { c.JSON(http.StatusCreated, made("1")) })
			return s.Serve(r)
		},
		"echo.WrapMiddleware": func(s *frameworktest.Service) string {
			e := echo.New()
			e.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
			refuse := func(*echo.Context) error { return echo.NewHTTPError(http.StatusUnprocessableEntity, "too small") }
			e.POST("/orders", refuse, echo.WrapMiddleware(s.Guard.Middleware(s.Route)))
			return s.Serve(e)
		},
		"adaptor.HTTPMiddleware of fiber": func(s *frameworktest.Service) string {
			app := fiber.New()
			app.Post("/orders", adaptor.HTTPMiddleware(s.Guard.Middleware(s.Route)), func(c fiber.Ctx) error { return c.JSON(made("1")) })
			return listen(app)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := db.Service(t, false)
			url := trap(s)
			for range 2 {
				s.Post(t.Context(), url, frameworktest.Make, rand.Text())
			}
			told := s.Told()
			if len(told) == 0 || !errors.Is(told[0].Err, semelhttp.ErrNoAnswer) || told[0].ID.Operation != "orders.create" {
				t.Errorf("told of %v", told)
			}
		})
	}
}
