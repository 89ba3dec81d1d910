package peers

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/storage/redis/v3"
	"github.com/valyala/fasthttp"
)

// fiberMiddleware sends requests to a handler behind Fiber's idempotency middleware,
// without a network in between. The answers are in its own memory, or in Redis.
//
// It does less: it writes only the answer, so nobody knows what a crashed handler has
// done; its lock is local to the process; it compares no payloads; and all callers share
// the keys.
func fiberMiddleware(b *testing.B, redisURL string) do {
	config := idempotency.Config{
		KeyHeader:         "Idempotency-Key",
		KeyHeaderValidate: func(string) error { return nil }, // it takes UUIDs only
	}
	if redisURL != "" {
		s := redis.New(redis.Config{URL: redisURL})
		b.Cleanup(func() {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
		config.Storage = s
	}
	app := fiber.New()
	app.Use(idempotency.New(config))
	app.Post("/charges", fiberCharge)
	handler := app.Handler()
	contexts := sync.Pool{New: func() any { // as its server has one per connection
		c := new(fasthttp.RequestCtx)
		c.Init(&fasthttp.Request{}, nil, nil)
		return c
	}}
	return func(_ context.Context, key string, replayed bool) error {
		c := contexts.Get().(*fasthttp.RequestCtx)
		defer contexts.Put(c)
		c.Request.Reset()
		c.Response.Reset()
		c.ResetUserValues()
		c.Request.Header.SetMethod(http.MethodPost)
		c.Request.SetRequestURI("/charges")
		c.Request.Header.Set("Idempotency-Key", key)
		c.Request.Header.SetContentType(contentType)
		c.Request.Header.Set("Authorization", credential)
		c.Request.SetBodyString(body)
		handler(c)
		if status := c.Response.StatusCode(); status != http.StatusCreated {
			return fmt.Errorf("status %d: %s", status, c.Response.Body())
		}
		// Nothing in the answer shows that it is a replay.
		return check(replayed, replayed, string(c.Response.Body()))
	}
}

func fiberCharge(c fiber.Ctx) error {
	if string(c.Body()) != body {
		return c.SendStatus(http.StatusBadRequest)
	}
	c.Set("Content-Type", contentType)
	c.Set("Location", "/charges/ch_1")
	return c.Status(http.StatusCreated).SendString(answer)
}
