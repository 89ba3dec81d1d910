package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// finding converts a finding for the engine. path is where its members are.
func (a *API) finding(f *wire.Finding, path string) (ef store.EffectFinding, err error) {
	ef = store.EffectFinding{Name: f.Name, State: f.State, Failure: (*store.Failure)(f.Error)}
	switch {
	case ef.State == store.EffectConfirmed && f.Error != nil:
		return ef, a.invalid(path+".error", "a confirmed effect has no error")
	case ef.State == store.EffectRefuted && (f.JSON != nil || f.Bytes != nil):
		return ef, a.invalid(path+".result", "a refuted effect has no result")
	}
	ef.Result, err = a.result(f.Result, path)
	return ef, err
}

type effectOutput struct {
	Status int
	Body   wire.Effect
}

func (b *builder) effects() {
	start := about("startEffect", "executions", "POST /v1/executions/{execution}/effects", "Make the intent to call a provider durable, or get what the call returned",
		"With 201 call the provider, with the effect's key, and settle the effect. "+
			"With 200 it was called before: use its result, or its error.")
	start.DefaultStatus = http.StatusCreated
	start.Responses = map[string]*huma.Response{
		"201": answer[wire.Effect](b, "Started: make the call."),
		"200": answer[wire.Effect](b, "Confirmed or refuted before."),
	}
	route(b, start, NoRole, append([]semel.Code{semel.CodeEffectUnknown, semel.CodeResultNotKept}, attached...), startEffect)
	route(b, about("settleEffect", "executions", "POST /v1/executions/{execution}/effects/settle", "Say what happened to a started effect",
		"Saying the same again is harmless."), NoRole, attached, settleEffect)
}

func startEffect(x *exchange, in *onExecution[wire.Intent]) (*effectOutput, error) {
	var ef store.EffectRecord
	_, err := x.onAttempt(in.Execution, func(at *semel.Attempt) (err error) {
		if in.Body.NotCalled {
			ef, err = at.RestartEffect(x.ctx(), in.Body.Name)
		} else {
			ef, err = at.StartEffect(x.ctx(), in.Body.Name)
		}
		return err
	})
	switch {
	case ef.State == store.EffectRefuted && ef.Failure != nil:
		// The engine returns the provider's refusal as an error; here it is the answer.
	case err != nil:
		return nil, err
	case ef.State == store.EffectStarted:
		return &effectOutput{http.StatusCreated, wire.EffectOf(&ef)}, nil
	}
	return &effectOutput{http.StatusOK, wire.EffectOf(&ef)}, nil
}

func settleEffect(x *exchange, in *onExecution[wire.Finding]) (*effectOutput, error) {
	f, err := x.api.finding(&in.Body, "body")
	if err != nil {
		return nil, err
	}
	at, err := x.onAttempt(in.Execution, func(at *semel.Attempt) error { return at.SettleEffect(x.ctx(), f) })
	if err != nil {
		return nil, err
	}
	for _, ef := range at.Effects() {
		if ef.Name == f.Name {
			return &effectOutput{http.StatusOK, wire.EffectOf(&ef)}, nil
		}
	}
	return nil, x.api.newProblem(door.CodeInternal, "")
}
