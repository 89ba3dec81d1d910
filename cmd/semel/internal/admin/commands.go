package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/semelhq/semel/client"
)

// Command is the operation of a command, and how the service's registry declares it.
type Command struct {
	Name      string   `json:"name"`
	Class     string   `json:"class"`
	Financial bool     `json:"financial"`
	Window    int64    `json:"window_ms"`
	Shields   []string `json:"shields"`
	Confirms  bool     `json:"confirms"`
	Declared  *struct {
		Critical      bool   `json:"critical"`
		Justification string `json:"justification,omitempty"`
		Binding       struct {
			Principal string `json:"principal"`
		} `json:"binding"`
	} `json:"command"`
}

// Commands reads the operations that belong to commands, by GET /v1/operations.
func (s *Service) Commands(ctx context.Context) ([]Command, error) {
	body, err := s.get(ctx, "/v1/operations", http.StatusOK)
	all := struct{ Operations []Command }{[]Command{}}
	if err == nil && json.Unmarshal(body, &all) != nil {
		err = &client.AnswerError{Status: http.StatusOK, Reason: "its operations aren't JSON"}
	}
	return slices.DeleteFunc(all.Operations, func(c Command) bool { return c.Declared == nil }), err
}
