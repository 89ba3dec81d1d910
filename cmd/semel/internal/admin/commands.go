package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/semelhq/semel/client"
)

// Command is the operation of a command, as the service's registry declares it.
type Command struct {
	Name      string
	Class     string
	Financial bool
	Window    int64 `json:"window_ms"`
	Shields   []string
	Confirms  bool
	Declared  struct {
		Critical      bool
		Justification string
		Binding       struct{ Principal string }
	} `json:"command"`
	text json.RawMessage
}

// MarshalJSON returns all that the service has said.
func (c *Command) MarshalJSON() ([]byte, error) { return c.text, nil }

// Commands reads the operations that belong to commands, by GET /v1/operations.
func (s *Service) Commands(ctx context.Context) ([]Command, error) {
	body, err := s.get(ctx, "/v1/operations", http.StatusOK)
	if err != nil {
		return nil, err
	}
	var all struct{ Operations []json.RawMessage }
	list := []Command{}
	err = json.Unmarshal(body, &all)
	for _, text := range all.Operations {
		c := Command{text: text}
		var has struct{ Command json.RawMessage }
		if err = json.Unmarshal(text, &has); err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err != nil {
			break
		}
		if has.Command != nil {
			list = append(list, c)
		}
	}
	if err != nil {
		return nil, &client.AnswerError{Status: http.StatusOK, Reason: "its operations aren't JSON"}
	}
	return list, nil
}
