package ids

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/finding"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
)

// asker asks URLs what a Go program would use functions for (IDS-XI.2). The zero value is ready
// for use.
type asker struct {
	upstreams *safehttp.Transport              // shared by all commands, because it keeps connections; nil: another
	trace     func(ctx context.Context) string // may be nil
	commands  map[string]*Entry                // by their names; may be nil
}

// question is the JSON that asker posts to step_up_url, reconcile_url and compensate_url.
type question struct {
	// Question is step_up, reconcile or compensate.
	Question string `json:"question"`
	// Command is the kind of command, and the ids are the ones of its first delivery.
	Command        string `json:"command"`
	TenantID       string `json:"tenant_id"`
	Principal      string `json:"principal"`
	CommandID      string `json:"command_id,omitempty"`
	CorrelationID  string `json:"correlation_id,omitempty"`
	IdempotencyKey string `json:"idempotency_key"`
	// StepUp is the caller's further proof.
	StepUp string `json:"step_up,omitempty"`
	// Attempt is held since StartedAt, and EffectKey is the key that the handler got.
	Attempt   int           `json:"attempt,omitempty"`
	StartedAt store.Instant `json:"started_at,omitzero"`
	EffectKey string        `json:"effect_key,omitempty"`
	// Compensation is the command that undoes this one, for the given Reason, and Outcome is
	// what this one returned.
	Compensation string          `json:"compensation,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	Outcome      json.RawMessage `json:"outcome,omitempty"`
}

// about makes a question about a recorded command.
func about(what string, rec *semel.Record) question {
	return question{
		Question: what, Command: rec.ID.Operation, TenantID: rec.ID.Tenant, IdempotencyKey: rec.ID.Key,
		Principal: cmp.Or(rec.ID.Principal, rec.Attributes["effective_actor_id"], rec.Attributes["actor_id"]),
		CommandID: rec.Attributes[semel.AttributeCommandID], CorrelationID: rec.Attributes[store.AttributeCorrelationID],
	}
}

// direct makes the connections of programs that run commands without a gateway.
var direct = &safehttp.Transport{Base: safehttp.Direct(nil)}

func (a *asker) base() *safehttp.Transport { return cmp.Or(a.upstreams, direct) }

func (a *asker) request(ctx context.Context, url string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if a.trace != nil {
		req.Header = door.Traced(req.Header, a.trace(ctx))
	}
	return req, nil
}

// maxFinding is the longest finding that asker reads, in bytes.
const maxFinding = 4 << 20

func (a *asker) ask(ctx context.Context, url string, q question) (*finding.Finding, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	req, err := a.request(ctx, url, body)
	if err != nil {
		return nil, err
	}
	f, err := finding.Ask(&safehttp.Client{Base: a.base(), MaxAnswer: maxFinding}, req)
	if err != nil {
		return nil, fmt.Errorf("ids: %s_url: %w", q.Question, err)
	}
	return f, nil
}

// stepUp verifies a further proof. Anything but a clear yes refuses it.
func (a *asker) stepUp(url string) func(context.Context, semel.Call) error {
	return func(ctx context.Context, call semel.Call) error {
		f, err := a.ask(ctx, url, question{
			Question: "step_up", Command: call.Operation, TenantID: call.Tenant, Principal: call.Principal, IdempotencyKey: call.Key,
			CommandID: call.Attributes[semel.AttributeCommandID], CorrelationID: call.Attributes[store.AttributeCorrelationID], StepUp: call.StepUp,
		})
		if err == nil && f.Outcome != semel.DispositionCompleted.String() {
			err = errors.New("ids: step_up_url: the outcome is " + f.Outcome)
		}
		return err
	}
}

// reconcile asks a URL what happened to a held command (IDS-XI.S4).
func (a *asker) reconcile(url string) settle.Ask {
	return func(ctx context.Context, held *semel.Record) (*finding.Finding, error) {
		q := about("reconcile", held)
		q.Attempt, q.StartedAt, q.EffectKey = held.Attempt, held.StartedAt, settle.EffectKey(held)
		return a.ask(ctx, url, q)
	}
}

// found says how records of the command have the word of somebody, who names them.
func (e *Entry) found(who string) settle.Form {
	return settle.Form{Who: who, Source: "the handler", Refused: store.EffectRefuted, Result: func(f *finding.Finding) (res semel.Result) {
		if f.Outcome == semel.DispositionCompleted.String() {
			res.Data = f.Body
		}
		return res
	}, Words: func(f *finding.Finding) (code, text string) {
		if code, text = e.words(&shield.Response{Status: f.Status, Body: f.Body}); f.Outcome != semel.DispositionRejected.String() {
			return "", text
		}
		return cmp.Or(code, fmt.Sprintf("status_%d", f.Status)), text
	}}
}

// compensate undoes an executed command, as the work of the command that undoes it. The URL
// answers like a handler.
func (a *asker) compensate(e *Entry, s *ShieldEntry) semel.Compensator {
	return func(ctx context.Context, x semel.Execution, original semel.Record) (semel.Result, error) {
		p := posting{Entry: e, url: s.CompensateURL, header: "Idempotency-Key"}
		if undo, ok := a.commands[s.Compensation]; ok {
			p.Entry = undo
		}
		q := about("compensate", &original)
		q.Compensation, q.Outcome = s.Compensation, outcomeOf(original.Result.Data).Outcome
		if original.Compensation != nil {
			q.Reason = original.Compensation.Reason
		}
		var err error
		if p.body, err = json.Marshal(q); err != nil {
			return semel.Result{}, semel.Aborted(err)
		}
		return p.send(ctx, x, a)
	}
}
