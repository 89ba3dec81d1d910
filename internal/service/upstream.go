package service

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/service/config"
)

// upstream is the program that handles what a door accepts. It gets posts by Standard
// Webhooks. Its address is the operator's; nobody who sends to the door can choose it.
type upstream struct {
	sender  dispatch.Sender
	timeout time.Duration
}

func (s *Server) newUpstream(a *config.Accepting, answers config.Answers) (*upstream, error) {
	secrets, err := a.UpstreamSecrets()
	if err != nil {
		return nil, err
	}
	sender, err := dispatch.HTTP(dispatch.HTTPOptions{
		URL: a.Upstream, Secrets: secrets, AllowPrivate: true, Trace: s.engine.Internal().Trace, Answers: judge.Answers(answers),
	})
	return &upstream{sender, time.Duration(a.Timeout)}, err
}

func (u *upstream) post(ctx context.Context, call semel.ID, m *semel.Message, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	return u.sender.Deliver(ctx, dispatch.Delivery{Message: m, Call: call, Header: header})
}

// encoded sets headers, with values encoded as in a path of a URL.
func encoded(h http.Header, namesAndValues ...string) {
	for i := 0; i < len(namesAndValues); i += 2 {
		h.Set(namesAndValues[i], url.PathEscape(namesAndValues[i+1]))
	}
}
