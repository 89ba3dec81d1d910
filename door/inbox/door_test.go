package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/inbox"
)

// An inbox tells its door of every decision, and accepts nothing with any of them.
func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{
		NoAction: "its answers are its door's",
		Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
			b, err := inbox.New(e, inbox.Options[struct{}]{
				Name: "events", Door: "test", Principal: "semel:test", Window: time.Hour, Budget: time.Millisecond,
				Handle: func(context.Context, *inbox.Item[struct{}]) error { return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			return func(key string) doortest.Reply {
				res, err := b.Accept(t.Context(), &inbox.Item[struct{}]{
					Tenant: "acme", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("content")),
					Now: func(context.Context) error { return work() },
				})
				e.Internal().Answered(e.Internal().Arrived(t.Context(), "test", nil), res.Event())
				if refused, ok := errors.AsType[*semel.Error](errors.Join(res.Err, err)); ok {
					return doortest.Reply{Code: string(refused.Code)}
				}
				return doortest.Reply{}
			}
		},
	})
}
