package whatsapp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/safehttp"
)

// A Mapper reads a command out of a message. It may be asked about one message more than once
// and should always say the same; it has no effects. Tenant, actor, trace and time of the
// command are filled in afterwards. Its errors are tried again, except [ErrNoCommand], which
// ends the work, and a [Refusal], which parks the message. It is called concurrently.
type Mapper interface {
	// Map reads one message.
	Map(ctx context.Context, m *Message) (ids.Command, error)
}

// MapperFunc is a function as a [Mapper].
type MapperFunc func(ctx context.Context, m *Message) (ids.Command, error)

// Map calls f.
func (f MapperFunc) Map(ctx context.Context, m *Message) (ids.Command, error) { return f(ctx, m) }

// DefaultMapTimeout bounds a question to an [HTTPMapper].
const DefaultMapTimeout = 10 * time.Second

// HTTPMapper asks a service: it gets the [Message] as JSON by POST, and answers with
// 200 and an envelope (tenant_id and actor_id may be left out), or with 204 if it is
// no command. 400 and 422 park the message; everything else is tried again.
type HTTPMapper struct {
	// URL is where to ask. Required.
	URL string
	// Header is sent with every question, such as an Authorization.
	Header http.Header
	// Timeout bounds one question. Defaults to [DefaultMapTimeout].
	Timeout time.Duration
	// Transport makes the connections. By default they go to the URL itself,
	// whatever proxy the environment names.
	Transport http.RoundTripper
}

// Map is [Mapper.Map].
func (h *HTTPMapper) Map(ctx context.Context, m *Message) (ids.Command, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return ids.Command{}, &Refusal{Code: codeMalformed, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return ids.Command{}, err
	}
	maps.Copy(req.Header, h.Header)
	req.Header.Set("Content-Type", "application/json")
	client := safehttp.Client{Base: h.Transport, Timeout: cmp.Or(h.Timeout, DefaultMapTimeout), MaxAnswer: ids.MaxEnvelope}
	answer, err := client.Do(req) // a redirect is no answer
	if err != nil {
		return ids.Command{}, err
	}
	switch answer.Status {
	case http.StatusOK:
		return envelope(answer.Body, m)
	case http.StatusNoContent:
		return ids.Command{}, ErrNoCommand
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return ids.Command{}, &Refusal{Code: "mapper", Err: fmt.Errorf("the mapper answered %d", answer.Status)}
	}
	return ids.Command{}, fmt.Errorf("the mapper answered %d", answer.Status)
}

// envelope reads the answer, and adds what the message says if the mapper did not.
func envelope(text []byte, m *Message) (ids.Command, error) {
	var members map[string]json.RawMessage
	_, err := semel.FingerprintJSON(text) // refuses what can be read in two ways
	if err == nil {
		err = json.Unmarshal(text, &members)
	}
	if err != nil || members == nil {
		return ids.Command{}, &Refusal{Code: "mapper", Err: errors.New("the mapper answered with no envelope")}
	}
	for name, value := range map[string]string{"tenant_id": m.TenantID, "actor_id": m.From} {
		if _, given := members[name]; !given {
			members[name], _ = json.Marshal(value) // a text always has a JSON form
		}
	}
	whole, _ := json.Marshal(members) // which came from JSON
	c, err := ids.ParseCommand(whole)
	if err != nil {
		return ids.Command{}, &Refusal{Code: "mapper", Err: err}
	}
	return c, nil
}
