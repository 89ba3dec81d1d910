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

// A Mapper reads a command from a message. It may be asked about a message more than once and
// should always give the same answer; it has no effects. Its caller fills in the command's
// tenant, actor, trace and time afterwards. Its errors are tried again, except [ErrNoCommand],
// which ends the work, and a [Refusal], which parks the message. It is called concurrently.
type Mapper interface {
	// Map reads one message.
	Map(ctx context.Context, m *Message) (ids.Command, error)
}

// MapperFunc lets you use a function as a [Mapper].
type MapperFunc func(ctx context.Context, m *Message) (ids.Command, error)

// Map calls f.
func (f MapperFunc) Map(ctx context.Context, m *Message) (ids.Command, error) { return f(ctx, m) }

// DefaultMapTimeout bounds a request of an [HTTPMapper].
const DefaultMapTimeout = 10 * time.Second

// HTTPMapper asks a service: it gets the [Message] as JSON by POST, and answers with 200 and an
// envelope (tenant_id and actor_id may be left out), or with 204 if the message isn't a
// command. 400 and 422 park the message; after anything else it asks again.
type HTTPMapper struct {
	// URL is the address of the service. Required.
	URL string
	// Header is sent with every request, such as an Authorization.
	Header http.Header
	// Timeout bounds one request. Defaults to [DefaultMapTimeout].
	Timeout time.Duration
	// Transport makes the connections. By default they go to the URL itself, even if the
	// environment names a proxy.
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
	answer, err := client.Do(req) // a redirect isn't an answer
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

// envelope reads the answer, and adds whatever the mapper left out and the message has.
func envelope(text []byte, m *Message) (ids.Command, error) {
	var members map[string]json.RawMessage
	_, err := semel.FingerprintJSON(text) // refuses ambiguous JSON
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
