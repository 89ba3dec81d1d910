package service

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/service/config"
)

// outbox delivers the messages of completed calls. A service without destinations has a
// nil outbox, which does nothing: messages wait for a node with destinations.
type outbox struct {
	dispatcher *dispatch.Dispatcher
	// cutOff breaks off the tries that are under way.
	cutOff context.CancelFunc
}

// newOutbox makes the dispatcher for destinations of the configuration and the service's own.
func newOutbox(engine *semel.Engine, c *config.Dispatch, own map[string]dispatch.Destination, events *dispatch.Events) (*outbox, error) {
	if len(c.Destinations) == 0 && len(own) == 0 {
		return nil, nil
	}
	o := &outbox{}
	var cut context.Context
	cut, o.cutOff = context.WithCancel(context.Background())
	opts := dispatch.Options{Destinations: map[string]dispatch.Destination{}, Events: events}
	for i := range c.Destinations {
		d := &c.Destinations[i]
		secrets, err := config.ReadSecrets(d.SecretFiles)
		if err != nil {
			return nil, at(fmt.Sprintf("dispatch.destinations[%d].secret_files", i), err)
		}
		sender, err := dispatch.HTTP(dispatch.HTTPOptions{URL: d.URL, Secrets: secrets, AllowPrivate: d.AllowPrivate, Trace: engine.Internal().Trace})
		if err != nil {
			return nil, at(fmt.Sprintf("dispatch.destinations[%d]", i), err)
		}
		opts.Destinations[d.Name] = dispatch.Destination{
			Allow:  func(call semel.ID) bool { return d.Accepts(call.Tenant, call.Operation) },
			Sender: breakable(cut, sender), Timeout: time.Duration(d.Timeout), Concurrency: d.Concurrency, Rate: semel.Rate(d.Rate),
			MinBackoff: time.Duration(d.MinBackoff), MaxBackoff: time.Duration(d.MaxBackoff),
			MaxTries: d.MaxTries, MaxAge: time.Duration(d.MaxAge),
		}
	}
	for name, d := range own {
		d.Sender = breakable(cut, d.Sender)
		opts.Destinations[name] = d
	}
	var err error
	o.dispatcher, err = dispatch.New(engine, opts)
	return o, err
}

// breakable is a sender: its tries end when cut does. The receiver may have handled the
// message by then; whoever finds it due sends it again, under the same id.
func breakable(cut context.Context, s dispatch.Sender) dispatch.Sender {
	return dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(cut, cancel)()
		return s.Deliver(ctx, d)
	})
}

// run delivers until you call stop. Then nothing new begins, and deliveries under way break off
// when grace is done. The channel closes when everything has ended and is recorded.
func (o *outbox) run() (stop func(grace context.Context) (ended <-chan struct{})) {
	if o == nil {
		ended := make(chan struct{})
		close(ended)
		return func(context.Context) <-chan struct{} { return ended }
	}
	cancel, ended := inBackground(o.dispatcher.Run)
	return func(grace context.Context) <-chan struct{} {
		cancel()
		context.AfterFunc(grace, o.cutOff)
		return ended
	}
}

// observeMessages logs a line for each try, without payloads: that about a delivery at a door,
// with the number of the try as its attempt, and what came of it.
func observeMessages(log *slog.Logger) *dispatch.Events {
	ctx := context.Background()
	tell := func(level slog.Level, outcome string) func(dispatch.DeliveryEvent) {
		return func(e dispatch.DeliveryEvent) {
			if !log.Enabled(ctx, level) {
				return
			}
			attrs := append(door.DeliveryAttrs(&semel.Delivered{Door: "dispatch", ID: e.Call, Attempt: e.Try, Took: e.Took, Err: e.Err, Executed: e.Executed, Trace: e.Executed}),
				slog.String("outcome", outcome), slog.String("message", e.MessageID), slog.String("destination", e.Destination), slog.String("waited", e.Waited.Round(time.Millisecond).String()))
			if e.Next != 0 {
				attrs = append(attrs, slog.Time("next", e.Next.Time()))
			}
			log.LogAttrs(ctx, level, door.Delivered, attrs...)
		}
	}
	return &dispatch.Events{
		Delivered: tell(slog.LevelInfo, "delivered"),
		Failed:    tell(slog.LevelInfo, "failed"),
		Parked:    tell(slog.LevelWarn, "parked"),
		Breaker: func(destination string, open bool) {
			if open {
				log.LogAttrs(ctx, slog.LevelWarn, "destination paused", slog.String("destination", destination))
				return
			}
			log.LogAttrs(ctx, slog.LevelInfo, "destination answers again", slog.String("destination", destination))
		},
		Trouble: func(err error) {
			log.LogAttrs(ctx, slog.LevelError, "dispatch failed", slog.Any("error", err))
		},
	}
}

func (s *Server) maySend(call semel.ID, destination string) bool {
	return s.current().cfg.Dispatch.MaySend(call.Tenant, call.Operation, destination)
}
