package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/server/auth"
	"github.com/semelhq/semel/server/config"
	"github.com/semelhq/semel/store/memstore"
)

// clockless is a store whose clock gives no time.
type clockless struct{ semel.Store }

func (clockless) Now(context.Context) (semel.Instant, error) {
	return 0, errors.New("the clock has stopped")
}

// A process that can begin nothing gets no traffic, and says why.
func TestAStoreWithoutAClockIsNotReady(t *testing.T) {
	for _, st := range []semel.Store{struct{ semel.Store }{memstore.New()}, clockless{memstore.New()}} {
		e, err := semel.New(st, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{store: st, engine: e, gen: &generation{cfg: &config.Config{}, auth: &auth.Authenticator{}}}
		s.promised.Store(&promised{})
		var text strings.Builder
		for _, c := range s.checks(t.Context()) {
			if c.err != nil {
				text.WriteString(c.name + ": " + c.err.Error())
			}
		}
		if _, stopped := st.(clockless); stopped != strings.Contains(text.String(), "store: the clock has stopped") || s.Healthy() == stopped {
			t.Errorf("%T is ready but for %q", st, text.String())
		}
		_ = e.Close(t.Context())
	}
}
