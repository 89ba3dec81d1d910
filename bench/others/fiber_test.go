package others

import (
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
)

// serveFiber has the middleware with its defaults, and the draft's name of the header, as
// https://docs.gofiber.io/middleware/idempotency says.
func serveFiber() {
	app := fiber.New()
	app.Use(idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key"}))
	handle := func(c fiber.Ctx) error {
		status, text := sale(string(c.Body()))
		c.Set("Content-Type", "application/json")
		return c.Status(status).SendString(text)
	}
	app.Post("/charges", handle)
	app.Post("/refunds", handle)
	must(app.Listener(listen(), fiber.ListenConfig{DisableStartupMessage: true}))
}
