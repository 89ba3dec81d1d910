package frameworks

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/gin-contrib/gzip"
	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/compress"
	fiberrecover "github.com/gofiber/fiber/v3/middleware/recover"
	echo4 "github.com/labstack/echo/v4"
	middleware4 "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/semelhq/semel/contrib/semelecho"
	"github.com/semelhq/semel/contrib/semelgin"
	"github.com/semelhq/semel/internal/rig/frameworktest"
)

// What has handlers and contexts of its own.

func init() {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
}

func withGin(s *frameworktest.Service) string {
	guard, route := s.Guard, s.Route
	answerErrors := func(c *gin.Context) { // as gin's documentation has it
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(http.StatusUnprocessableEntity, gin.H{"error": c.Errors.Last().Error()})
		}
	}
	create := func(c *gin.Context) {
		key := c.GetHeader("Idempotency-Key")
		if err := s.Create(c.Request.Context(), c.Query("do"), key); err != nil {
			_ = c.Error(err)
			return
		}
		c.JSON(http.StatusCreated, made(key))
	}
	// snippet: Gin
	r := gin.New()
	r.Use(gzip.Gzip(gzip.DefaultCompression), gin.Recovery()) // for each delivery
	r.POST("/orders", semelgin.Guard(guard, route), answerErrors, create)
	// end snippet
	return s.Serve(r)
}

func withEcho(s *frameworktest.Service) string {
	guard, route := s.Guard, s.Route
	create := func(c *echo.Context) error {
		key := c.Request().Header.Get("Idempotency-Key")
		err := s.Create(c.Request().Context(), c.QueryParam("do"), key)
		if errors.Is(err, frameworktest.ErrRefused) {
			return echo.NewHTTPError(http.StatusUnprocessableEntity, err.Error())
		} else if err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, made(key))
	}
	// snippet: Echo
	e := echo.New()
	e.Use(middleware.Gzip(), middleware.Recover()) // for each delivery
	e.POST("/orders", create, semelecho.Guard(guard, route))
	// end snippet
	e.Logger = slog.New(slog.DiscardHandler)
	return s.Serve(e)
}

func withEcho4(s *frameworktest.Service) string {
	guard, route := s.Guard, s.Route
	create := func(c echo4.Context) error {
		key := c.Request().Header.Get("Idempotency-Key")
		err := s.Create(c.Request().Context(), c.QueryParam("do"), key)
		if errors.Is(err, frameworktest.ErrRefused) {
			return echo4.NewHTTPError(http.StatusUnprocessableEntity, err.Error())
		} else if err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, made(key))
	}
	// snippet: Echo4
	e := echo4.New()
	e.Use(middleware4.Recover())
	e.POST("/orders", create)
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard.Handler(route, e)) // around all of Echo
	mux.Handle("/", e)
	// end snippet
	e.Logger.SetOutput(io.Discard)
	return s.Serve(mux)
}

func withFiber(s *frameworktest.Service) string {
	guard, route, create := s.Guard, s.Route, create(s) // a handler of net/http
	// snippet: Fiber
	app := fiber.New()
	app.Use(compress.New(), fiberrecover.New()) // for each delivery
	app.Post("/orders", adaptor.HTTPHandler(guard.Handler(route, create)))
	// end snippet
	s.Native = true
	return listen(app)
}

func withFiberApp(s *frameworktest.Service) string {
	guard, route := s.Guard, s.Route
	app := fiber.New()
	app.Post("/orders", func(c fiber.Ctx) error {
		key := c.Get("Idempotency-Key")
		err := s.Create(c.Context(), c.Query("do"), key)
		if errors.Is(err, frameworktest.ErrRefused) {
			return fiber.NewError(http.StatusUnprocessableEntity, err.Error())
		} else if err != nil {
			return err
		}
		return c.Status(http.StatusCreated).JSON(made(key))
	})
	// snippet: FiberApp
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard.Handler(route, adaptor.FiberApp(app)))
	mux.Handle("/", adaptor.FiberApp(app))
	// end snippet
	return s.Serve(mux)
}

// listen serves a program of fiber with fasthttp, and returns its address.
func listen(app *fiber.App) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	return "http://" + l.Addr().String()
}
