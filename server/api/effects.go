package api

import (
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
)

// intent is the will to call a provider.
type intent struct {
	Name     string `json:"name" minLength:"1" maxLength:"256" doc:"Unique within the call." example:"charge"`
	Uncalled bool   `json:"uncalled,omitempty" doc:"The caller asked before, got no answer, and made no call."`
}

type startInput struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The execution, as the beginning named it."`
	Body      intent
}

type settleEffectInput struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The execution, as the beginning named it."`
	Body      finding
}

// finding says what became of an effect.
type finding struct {
	Name        string          `json:"name" minLength:"1" maxLength:"256"`
	State       string          `json:"state" enum:"confirmed,refuted" doc:"Refuted without error: it did not happen and may be started again. With error: the provider refused for good."`
	Result      json.RawMessage `json:"result,omitempty"`
	ResultBytes *string         `json:"result_base64,omitempty"`
	Error       *failure        `json:"error,omitempty"`
}

// finding as the engine has it. path is where its members are.
func (a *API) finding(f finding, path string) (ef semel.EffectFinding, err error) {
	ef = semel.EffectFinding{Name: f.Name, State: semel.EffectState(f.State), Failure: f.Error.kept()}
	switch {
	case ef.State == semel.EffectConfirmed && f.Error != nil:
		return ef, a.invalid(path+".error", "what happened has no error")
	case ef.State == semel.EffectRefuted && (f.Result != nil || f.ResultBytes != nil):
		return ef, a.invalid(path+".result", "what did not happen has no result")
	}
	ef.Result, err = a.result(given{f.Result, f.ResultBytes}, path)
	return ef, err
}

type effectOutput struct {
	Status int
	Body   effect
}

func (b *builder) effects() {
	route(b, huma.Operation{
		OperationID: "startEffect", Method: http.MethodPost, Path: "/v1/executions/{execution}/effects", DefaultStatus: http.StatusCreated, Tags: []string{"executions"},
		Summary: "Make the intent to call a provider durable, or get what the call returned",
		Description: "With 201 the caller calls the provider, with the effect's key, and settles the effect. " +
			"With 200 it was called before: use its result, or its error.",
		Responses: map[string]*huma.Response{
			"201": answer[effect](b, "Started: make the call."),
			"200": answer[effect](b, "Confirmed or refuted before."),
		},
	}, NoRole, append([]semel.Code{semel.CodeEffectUnknown, semel.CodeResultNotKept}, attached...), startEffect)
	route(b, huma.Operation{
		OperationID: "settleEffect", Method: http.MethodPost, Path: "/v1/executions/{execution}/effects/settle", DefaultStatus: http.StatusOK, Tags: []string{"executions"},
		Summary:     "Tell what became of a started effect",
		Description: "Telling the same again is harmless.",
	}, NoRole, attached, settleEffect)
}

func startEffect(x *exchange, in *startInput) (*effectOutput, error) {
	var ef semel.EffectRecord
	_, err := x.onAttempt(in.Execution, func(at *semel.Attempt) (err error) {
		if in.Body.Uncalled {
			ef, err = at.RestartEffect(x.ctx(), in.Body.Name)
		} else {
			ef, err = at.StartEffect(x.ctx(), in.Body.Name)
		}
		return err
	})
	switch {
	case ef.State == semel.EffectRefuted && ef.Failure != nil:
		// The engine gives the provider's refusal as an error; here it is the
		// answer.
	case err != nil:
		return nil, err
	case ef.State == semel.EffectStarted:
		return &effectOutput{http.StatusCreated, effectOf(&ef)}, nil
	}
	return &effectOutput{http.StatusOK, effectOf(&ef)}, nil
}

func settleEffect(x *exchange, in *settleEffectInput) (*effectOutput, error) {
	f, err := x.api.finding(in.Body, "body")
	if err != nil {
		return nil, err
	}
	at, err := x.onAttempt(in.Execution, func(at *semel.Attempt) error { return at.SettleEffect(x.ctx(), f) })
	if err != nil {
		return nil, err
	}
	for _, ef := range at.Effects() {
		if ef.Name == f.Name {
			return &effectOutput{http.StatusOK, effectOf(&ef)}, nil
		}
	}
	return nil, x.api.newProblem(CodeInternal, "")
}
