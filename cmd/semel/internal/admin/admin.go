// Package admin reads readiness, figures and metrics from the admin listener of a running
// service.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/internal/wire"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 16 << 20

// Service is the admin listener of a service. Its methods may be called concurrently. They send
// the token that New got to nobody else. An error is a [semel.Error], or a [client.AnswerError] if
// something other than a service answers.
type Service struct{ at *peer.Listener }

// New returns the service at a URL and sends nothing yet. Each request reads the token from the
// file, if there is one. Token and file may both be empty.
func New(address, token, tokenFile string) (*Service, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("not an http or https URL such as http://127.0.0.1:8481")
	}
	if _, err := peer.Token(token, tokenFile); err != nil {
		return nil, err
	}
	return &Service{&peer.Listener{
		URL: strings.TrimRight(address, "/"), Kind: peer.Admin, Token: token, TokenFile: tokenFile,
		HTTP: &http.Client{CheckRedirect: peer.NoRedirects},
	}}, nil
}

// URL returns the address without a slash at the end.
func (s *Service) URL() string { return s.at.URL }

// Anonymous returns the same service, without a credential.
func (s *Service) Anonymous() *Service {
	return &Service{&peer.Listener{URL: s.at.URL, Kind: peer.Admin, HTTP: s.at.HTTP}}
}

// answer is a complete answer of the listener.
type answer struct {
	status  int
	problem bool
	body    []byte
}

// refusal returns the error that a problem document is, or nil for any other answer.
func (a *answer) refusal() error {
	var p wire.Problem
	if !a.problem || json.Unmarshal(a.body, &p) != nil || p.Code == "" {
		return nil
	}
	return &semel.Error{Code: p.Code, Message: p.Detail}
}

// Send sends a request without a body, and returns the status and the answer.
func (s *Service) Send(ctx context.Context, method, path string) (status int, body []byte, err error) {
	a, err := s.send(ctx, method, path)
	if err != nil {
		return 0, nil, err
	}
	return a.status, a.body, nil
}

func (s *Service) send(ctx context.Context, method, path string) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.at.URL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.at.Do(r)
	if e, ok := errors.AsType[*peer.Stranger](err); ok {
		return nil, &client.AnswerError{Status: e.Status, Reason: e.Reason}
	}
	if e, ok := errors.AsType[*peer.TokenError](err); ok {
		return nil, e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the rest is in the message
	}
	if err != nil {
		return nil, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "no service answers at " + s.URL(), Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the connection broke during the answer", Err: err}
	case len(body) > maxAnswer:
		return nil, &client.AnswerError{Status: resp.StatusCode, Reason: "the answer is too long"}
	}
	return &answer{resp.StatusCode, peer.IsProblem(resp), body}, nil
}

// get reads a path. Any status but those listed is an error, and so is any problem document: the
// service has refused the request.
func (s *Service) get(ctx context.Context, path string, statuses ...int) ([]byte, error) {
	a, err := s.send(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	refusal := a.refusal()
	switch {
	case a.status == http.StatusUnauthorized: // says what to type, which a problem doesn't
		return nil, &semel.Error{Code: door.CodeUnauthorized, Message: "the service wants a token: --token-file, or the variable SEMEL_TOKEN"}
	case a.status == http.StatusForbidden:
		return nil, &semel.Error{Code: semel.CodeForbidden, Message: "this needs the role viewer: in auth, the roles of a token or a certificate give it, or a value of auth.jwt[].roles"}
	case refusal != nil:
		return nil, refusal
	case slices.Contains(statuses, a.status):
		return a.body, nil
	case a.status == http.StatusServiceUnavailable:
		return nil, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the service answers 503"}
	}
	return nil, &client.AnswerError{Status: a.status, Reason: "there is no " + path}
}

// Figures has what GET /v1/figures answers. Text is the whole answer.
type Figures struct {
	figures.Report
	Text json.RawMessage `json:"-"`
}

// Figures reads the figures of the last d, in whole minutes.
func (s *Service) Figures(ctx context.Context, d time.Duration) (*Figures, error) {
	body, err := s.get(ctx, "/v1/figures?minutes="+strconv.Itoa(int(d/time.Minute)), http.StatusOK)
	if err != nil {
		return nil, err
	}
	f := &Figures{Text: body}
	if err := json.Unmarshal(body, f); err != nil {
		return nil, &client.AnswerError{Status: http.StatusOK, Reason: "the figures aren't JSON"}
	}
	return f, nil
}

// MarshalJSON returns the whole answer.
func (f *Figures) MarshalJSON() ([]byte, error) { return f.Text, nil }

// Attempts are the open attempts in the store, as a node counted them last.
type Attempts struct {
	InFlight       int     `json:"in_flight"`
	Held           int     `json:"held"`
	OldestInFlight float64 `json:"oldest_in_flight_seconds"`
	OldestHeld     float64 `json:"oldest_held_seconds"`
}

// Attempts reads the gauges of GET /metrics; nil until the node has counted attempts.
func (s *Service) Attempts(ctx context.Context) (*Attempts, error) {
	body, err := s.get(ctx, "/metrics", http.StatusOK)
	if err != nil {
		return nil, err
	}
	gauges := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if i < 0 || err != nil {
			return nil, &client.AnswerError{Status: http.StatusOK, Reason: "the metrics can't be read"}
		}
		gauges[line[:i]] = value
	}
	if _, counted := gauges[`semel_attempts{state="held"}`]; !counted {
		return nil, nil
	}
	return &Attempts{
		int(gauges[`semel_attempts{state="in_flight"}`]), int(gauges[`semel_attempts{state="held"}`]),
		gauges[`semel_oldest_attempt_seconds{state="in_flight"}`], gauges[`semel_oldest_attempt_seconds{state="held"}`],
	}, nil
}

// Check is a line of GET /readyz?verbose.
type Check struct {
	// Mark is + if all is well, ! if somebody should look, and - if the node should get no
	// traffic.
	Mark byte
	// Detail says what the check found; only callers with a role get it.
	Name, Detail string
}

// Ready runs the checks of readiness.
func (s *Service) Ready(ctx context.Context) ([]Check, error) {
	body, err := s.get(ctx, "/readyz?verbose", http.StatusOK, http.StatusServiceUnavailable)
	if err != nil {
		return nil, err
	}
	var checks []Check
	for line := range strings.Lines(string(body)) {
		line = strings.TrimRight(line, "\n")
		if n := len(checks); n > 0 && !strings.HasPrefix(line, "[") { // an error of several lines
			checks[n-1].Detail += " " + line
			continue
		}
		if len(line) < 4 || line[0] != '[' || line[2:4] != "] " {
			return nil, &client.AnswerError{Status: http.StatusOK, Reason: "/readyz isn't that of a service"}
		}
		name, detail, _ := strings.Cut(line[4:], ": ")
		checks = append(checks, Check{Mark: line[1], Name: strings.TrimSuffix(name, " ok"), Detail: detail})
	}
	if len(checks) == 0 {
		return nil, &client.AnswerError{Status: http.StatusOK, Reason: "/readyz isn't that of a service"}
	}
	return checks, nil
}

// Commands reads the operations that belong to commands, by GET /v1/operations.
func (s *Service) Commands(ctx context.Context) ([]wire.Operation, error) {
	body, err := s.get(ctx, "/v1/operations", http.StatusOK)
	all := wire.OperationList{Operations: []wire.Operation{}}
	if err == nil && json.Unmarshal(body, &all) != nil {
		err = &client.AnswerError{Status: http.StatusOK, Reason: "its operations aren't JSON"}
	}
	return slices.DeleteFunc(all.Operations, func(o wire.Operation) bool { return o.Command == nil }), err
}
