package semelproxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// Finding is the JSON of an upstream about a call.
type Finding struct {
	// Outcome is completed, rejected or failed, with the answer that the caller
	// would have got; aborted, if the call has not arrived and never will, so
	// that the next delivery is sent on; or unknown, to be asked again later.
	Outcome string `json:"outcome"`
	// Status, Headers and Body are the answer. Status defaults to 200 where
	// completed, to 422 where rejected, and to 500 where failed. Body is base64.
	Status  int         `json:"status,omitempty"`
	Headers http.Header `json:"headers,omitempty"`
	Body    []byte      `json:"body,omitempty"`
	// Message is why it was rejected or failed, for people.
	Message string `json:"message,omitempty"`
}

const (
	// maxFinding is the longest finding that is read, in bytes.
	maxFinding = 4 << 20
	// reconcileTimeout bounds one question.
	reconcileTimeout = 10 * time.Second
)

// ReconcileHTTP settles held calls by asking a URL about them:
//
//	GET url?operation=NAME&key=KEY&tenant=TENANT&attempt=N&started_at=TIME&effect_key=KEY
//
// The effect_key is there if the upstream call was in the ledger, and tenant if there is
// one. The question must not change anything. Answer it with 200 and a [Finding]. Any other
// status, 404 included, is ignored: the record stays held, and the proxy asks again after
// Operation.ReconcileEvery.
//
// An upstream that answers aborted promises that the request, should it still be
// on its way, will not be executed.
//
// Redirects are not followed. Base makes the connections; nil makes them to the URL
// itself, whatever proxy the environment names.
func ReconcileHTTP(u *url.URL, base http.RoundTripper) semel.Reconciler {
	client := &safehttp.Client{Base: base, Timeout: reconcileTimeout, MaxAnswer: maxFinding}
	return func(ctx context.Context, held semel.Record) (semel.Settlement, error) {
		f, err := ask(ctx, client, u, &held)
		if err != nil {
			return semel.Settlement{}, fmt.Errorf("semelproxy: reconcile: %w", err)
		}
		return f.settlement(&held)
	}
}

func ask(ctx context.Context, client *safehttp.Client, u *url.URL, held *semel.Record) (*Finding, error) {
	target := *u
	q := target.Query()
	q.Set("operation", held.ID.Operation)
	q.Set("key", held.ID.Key)
	if held.ID.Tenant != "" {
		q.Set("tenant", held.ID.Tenant)
	}
	q.Set("attempt", strconv.Itoa(held.Attempt))
	if at, err := held.StartedAt.MarshalText(); err == nil {
		q.Set("started_at", string(at))
	}
	for _, ef := range held.Effects {
		if ef.Name == UpstreamEffect {
			q.Set("effect_key", ef.Key)
		}
	}
	target.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("the answer has status %d, not 200", answer.Status)
	}
	// What can be read in two ways, such as two outcomes, is no finding.
	if _, err := canon.Canonicalize(answer.Body, canon.Exact); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return readFinding(answer.Body)
}

// readFinding takes only the names as they are written: package json takes Outcome for
// outcome, and so the last of both.
func readFinding(text []byte) (*Finding, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, errors.New("the answer is no finding: it is no object")
	}
	for name := range members {
		switch name {
		case "outcome", "status", "headers", "body", "message":
		default:
			delete(members, name)
		}
	}
	exact, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	f := new(Finding)
	if err := json.Unmarshal(exact, f); err != nil {
		return nil, errors.New("the answer is no finding: a member has another type")
	}
	return f, nil
}

// settlement is the settlement of a held record by a finding.
func (f *Finding) settlement(held *semel.Record) (s semel.Settlement, err error) {
	state, status := store.EffectConfirmed, 0
	switch f.Outcome {
	case "unknown":
		return s, nil
	case "completed":
		s.Outcome, status = semel.DispositionCompleted, http.StatusOK
	case "rejected":
		s.Outcome, status = semel.DispositionRejected, http.StatusUnprocessableEntity
	case "failed":
		s.Outcome, status, state = semel.DispositionFailed, http.StatusInternalServerError, store.EffectRefuted
	case "aborted":
		s.Outcome, state = semel.DispositionAborted, store.EffectRefuted
	default:
		return s, fmt.Errorf("semelproxy: reconcile: the outcome is %q, not completed, rejected, failed, aborted or unknown", f.Outcome)
	}
	if s.Outcome != semel.DispositionAborted {
		status = cmp.Or(f.Status, status)
		if status < 200 || status > 999 {
			return semel.Settlement{}, fmt.Errorf("semelproxy: reconcile: %d is not the status of an answer", status)
		}
		s.Result = semelhttp.NewResult(status, f.Headers, f.Body)
	}
	if s.Outcome != semel.DispositionCompleted {
		s.Failure = &store.Failure{Message: cmp.Or(f.Message, "the upstream said so when it was asked")}
		if status != 0 {
			s.Failure.Code = strconv.Itoa(status)
		}
	}
	for _, ef := range held.Effects {
		if ef.Name == UpstreamEffect && ef.State == store.EffectStarted {
			s.Effects = append(s.Effects, store.EffectFinding{Name: ef.Name, State: state})
		}
	}
	return s, nil
}
