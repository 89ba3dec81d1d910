package ids

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/check"
)

// kit is one run.
type kit struct {
	*check.Bench
	delivered atomic.Int64
}

// command is delivered many times. Its target is its own.
type command struct {
	target  string
	members map[string]any
}

// command makes a new command.
func (k *kit) command(action string, amount int) command {
	return k.about(check.Name(), action, amount)
}

// about makes a command about a target.
func (k *kit) about(target, action string, amount int) command {
	return command{target, map[string]any{
		"tenant_id": k.Flag("tenant"), "actor_id": k.Flag("actor"),
		"intent": map[string]any{"entity": "idstest", "action": action, "target": target},
		"args":   map[string]any{"amount": amount, "currency": "EUR"},
	}}
}

// with is the command with another member.
func (c command) with(name string, value any) command {
	c.members = maps.Clone(c.members)
	c.members[name] = value
	return c
}

// answer has the members that the specification names.
type answer struct {
	HTTP                              int `json:"-"`
	Status, Decision, Reason, Summary string
	CommandID                         string `json:"command_id"`
	CorrelationID                     string `json:"correlation_id"`
	IdempotencyKey                    string `json:"idempotency_key"`
	OutcomeRef                        string `json:"outcome_ref"`
	StatusURL                         string `json:"status_url"`
	Outcome                           json.RawMessage
	Confirmation                      struct{ Token string }
	fault                             error // there is none, or it can't be read
}

// String is what an answer comes to.
func (a answer) String() string {
	if a.fault != nil {
		return "no answer (" + a.fault.Error() + ")"
	}
	return fmt.Sprintf("HTTP %d, status %q, decision %q, reason %q", a.HTTP, a.Status, a.Decision, a.Reason)
}

func (a answer) executed() bool { return a.fault == nil && a.Status == "executed" }

// read reads an answer. A problem document (RFC 9457) is one without a status.
func read(got check.Answer) answer {
	a, problem, into := answer{HTTP: got.Status, fault: got.Err}, struct{ Code string }{}, any(nil)
	if into = &a; strings.HasPrefix(got.Header.Get("Content-Type"), "application/problem+json") {
		into = &problem
	}
	if got.Err == nil {
		a.fault = json.Unmarshal([]byte(got.Body), into)
	}
	a.Reason = cmp.Or(a.Reason, problem.Code)
	return a
}

// deliver delivers a command as a new message, which has ids and times of its own.
func (k *kit) deliver(ctx context.Context, c command) answer {
	n, now := k.delivered.Add(1), time.Now().UTC()
	members := map[string]any{
		"command_id": fmt.Sprintf("c-%s-%d", c.target, n), "correlation_id": fmt.Sprintf("corr-%d", n), "received_at": now.Format(time.RFC3339Nano),
		"trace": map[string]any{"message_id": fmt.Sprintf("wamid.%d.%d", now.UnixNano(), n), "phone_number_id": "100"},
	}
	maps.Copy(members, c.members)
	text, err := json.Marshal(members)
	if err != nil {
		return answer{fault: err}
	}
	return read(k.Post(ctx, c.target, string(text), nil))
}

// settle delivers until the command is no longer in progress, and duplicates are not limited.
func (k *kit) settle(ctx context.Context, c command) answer {
	return check.Until(ctx, k.Bench, func() (answer, bool) {
		a := k.deliver(ctx, c)
		return a, a.Status != "processing" && a.HTTP != http.StatusTooManyRequests
	})
}

// start becomes the provider, and sees that commands reach it.
func start(ctx context.Context, b *check.Bench) ([]check.Group, error) {
	provider, err := b.Provide(ctx, func(w http.ResponseWriter, target, _ string, n int) {
		_ = json.NewEncoder(w).Encode(map[string]any{"summary": "done: " + target, "outcome": map[string]any{"target": target, "effect": n}})
	})
	if err != nil {
		return nil, err
	}
	k := &kit{Bench: b}
	c := k.command("charge", 1)
	if a := k.settle(ctx, c); !a.executed() || k.Effects(c.target) == 0 {
		return nil, fmt.Errorf("the command charge of the entity idstest gets %s, and %d effects have come to %s: let it be executed by a POST of its envelope there", a, k.Effects(c.target), provider)
	}
	return []check.Group{
		check.Ask("duplicates", "once apart key", k.duplicates),
		check.Ask("concurrent", "once answers", k.concurrent, "duplicates"),
		check.Ask("replay", "outcome decision evidence", k.replays, "duplicates"),
		check.Ask("progress", "answer status once", k.inProgress, "duplicates"),
		check.Ask("collision", "refused kept evidence", k.collision, "duplicates"),
		check.Ask("confirmation", "asked bound once replayed", k.confirmation, "duplicates"),
	}, nil
}
