package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
)

// commandDoor is the gateway for commands of RFC-WF-0010: envelopes without a key, which
// differ in what they say of their delivery.
type commandDoor struct{}

const (
	registryName = "commands.yaml"
	evidenceName = "evidence.key"
	// commandPath is fixed.
	commandPath = "/v1/commands"
)

// registry declares one command. Its limit of duplicates is out of a storm's way.
const registry = `version: 1
commands:
  - entity: order
    action: charge
    financial: true
    lease: %s
    rights: {execute: ['orders:charge']}
    per_record: {per_second: 1000, burst: 1000}
    handler: {url: %q, timeout: 1m}
`

func (commandDoor) name() string { return "commands" }
func (commandDoor) slug() string { return "command" }

func (commandDoor) configure(c *setup) error {
	c.add("commands", "registry: %s", registryName)
	c.add("evidence", "key_file: %s", evidenceName)
	if err := c.file(registryName, fmt.Sprintf(registry, tourLease, c.upstream+commandPath)); err != nil {
		return err
	}
	return c.secret(evidenceName, func() (string, error) {
		keys, err := evidence.GenerateKeys("localhost/semel-demo")
		if err != nil {
			return "", err
		}
		return string(keys.Text()), nil
	})
}

func (commandDoor) serve(p *provider, mux *http.ServeMux) {
	mux.HandleFunc("POST "+commandPath, func(w http.ResponseWriter, r *http.Request) {
		var c struct {
			Args           order  `json:"args"`
			IdempotencyKey string `json:"idempotency_key"`
		}
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(w, "this is no command", http.StatusBadRequest)
			return
		}
		p.chargeAs(w, r, c.Args, c.IdempotencyKey, func(c Charge) (int, any) {
			return http.StatusOK, outcome(c)
		})
	})
}

// outcome is a charge as the handler of a command answers it.
func outcome(c Charge) ids.Outcome {
	return ids.Outcome{Summary: "Charged " + c.Order, Outcome: document(c)}
}

func (commandDoor) deliver(ctx context.Context, t *target, o order, copy int) (reply, error) {
	envelope := map[string]any{
		"tenant_id": tenant, "actor_id": actor,
		"intent": map[string]any{"entity": "order", "action": "charge", "target": o.Order},
		"args":   o,
		"trace":  map[string]any{"message_id": fmt.Sprintf("%s.%d", o.Order, copy)},
	}
	a, err := t.client.post(ctx, t.guard+commandPath, t.bearer(), document(envelope))
	if err != nil {
		return reply{}, err
	}
	var r ids.Response
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		return reply{same: a.body}, nil
	}
	got := httpReply(a, fmt.Sprint(r.CommandID, r.Status, r.Summary, string(r.Outcome)))
	got.final = got.final && r.Status != ids.StatusProcessing
	return got, nil
}

func (commandDoor) result(c Charge) semel.Result { return semel.Result{Data: document(outcome(c))} }
