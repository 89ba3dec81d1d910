// Package admin asks the admin listener of a running service for what operators look at
// beside records: readiness, figures and metrics.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 16 << 20

// Service is the admin listener of a service. Its methods may be called concurrently. They
// send the token that New was given, and follow no redirect, because another address would
// get it. An error is a [semel.Error], or a [client.AnswerError] where something else than
// a service answers.
type Service struct {
	url, token, tokenFile string
	http                  *http.Client
}

// New is the service at a URL. The token is read from the file for each question, if one is
// named; both may be empty. It asks nothing yet.
func New(address, token, tokenFile string) (*Service, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("not an http or https URL such as http://127.0.0.1:8481")
	}
	return &Service{
		url: strings.TrimRight(address, "/"), token: token, tokenFile: tokenFile,
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// URL is where the service is, without a slash at the end.
func (s *Service) URL() string { return s.url }

// Anonymous is the same service, asked without a credential.
func (s *Service) Anonymous() *Service { return &Service{url: s.url, http: s.http} }

// get asks for a path. The status is one of the listed ones.
func (s *Service) get(ctx context.Context, path string, statuses ...int) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	token := s.token
	if s.tokenFile != "" {
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return 0, nil, fmt.Errorf("token file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return 0, nil, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the service can't be reached", Err: err}
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the answer broke off", Err: err}
	case len(body) > maxAnswer:
		return 0, nil, &client.AnswerError{Status: resp.StatusCode, Reason: "it is too long"}
	}
	if slices.Contains(statuses, resp.StatusCode) {
		return resp.StatusCode, body, nil
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return 0, nil, &semel.Error{Code: door.CodeUnauthorized, Message: "the service wants a token: --token-file, or the variable SEMEL_TOKEN"}
	case http.StatusForbidden:
		return 0, nil, &semel.Error{Code: semel.CodeForbidden, Message: "the token's bearer may not see this: it needs the role viewer, for all tenants"}
	case http.StatusServiceUnavailable:
		return 0, nil, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the service answers " + resp.Status}
	}
	return 0, nil, &client.AnswerError{Status: resp.StatusCode, Reason: path + " isn't there"}
}

// Figures are what happened lately, over all nodes, as GET /v1/figures says it. Text is the
// whole answer.
type Figures struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds int       `json:"step_seconds"`
	Nodes       int       `json:"nodes"`
	// Alone says that the store doesn't answer: the figures are those of the node that was
	// asked, and what it had read of others before.
	Alone      bool        `json:"alone"`
	Total      Sums        `json:"total"`
	Operations []Operation `json:"operations"`
	Series     []Series    `json:"series"`
	Points     []Point     `json:"points"`
	Repeated   []Record    `json:"repeated"`

	Text json.RawMessage `json:"-"`
}

// Sums are the counts of some deliveries.
type Sums struct {
	Deliveries     int64   `json:"deliveries"`
	Executed       int64   `json:"executed"`
	Duplicates     int64   `json:"duplicates"`
	DuplicateShare float64 `json:"duplicate_share"`
	Simultaneous   int64   `json:"simultaneous"`
	FailedAttempts int64   `json:"failed_attempts"`
	Refused        int64   `json:"refused"`
}

// Operation has the sums of one operation.
type Operation struct {
	Operation string `json:"operation"`
	Sums
}

// Series is the count of one decision, or of something else, of one operation at one door.
type Series struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// Point has the sums of one step, which begins At, and what half and 99 % of its deliveries
// had added to their time at most, in seconds.
type Point struct {
	At time.Time `json:"at"`
	Sums
	P50 float64 `json:"added_p50_seconds"`
	P99 float64 `json:"added_p99_seconds"`
}

// Record has the counts of one record.
type Record struct {
	Record       string    `json:"record"`
	Tenant       string    `json:"tenant"`
	Operation    string    `json:"operation"`
	Duplicates   int64     `json:"duplicates"`
	Simultaneous int64     `json:"simultaneous"`
	Peak         int64     `json:"peak"`
	Last         time.Time `json:"last"`
}

// Figures asks for the last d, in whole minutes.
func (s *Service) Figures(ctx context.Context, d time.Duration) (*Figures, error) {
	_, body, err := s.get(ctx, "/v1/figures?minutes="+strconv.Itoa(int(d/time.Minute)), http.StatusOK)
	if err != nil {
		return nil, err
	}
	f := &Figures{Text: body}
	if err := json.Unmarshal(body, f); err != nil {
		return nil, &client.AnswerError{Status: http.StatusOK, Reason: "its figures aren't JSON"}
	}
	return f, nil
}

// Gauges are the metrics of the node that have one value, by name and, in braces, the values
// of their labels in the order of the labels' names: semel_attempts{held}.
type Gauges map[string]float64

// Gauges reads GET /metrics.
func (s *Service) Gauges(ctx context.Context) (Gauges, error) {
	_, body, err := s.get(ctx, "/metrics", http.StatusOK)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, &client.AnswerError{Status: http.StatusOK, Reason: "its metrics can't be read"}
	}
	g := Gauges{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			at := name
			if len(labels) > 0 {
				at += "{" + strings.Join(labels, ",") + "}"
			}
			if m.GetGauge() != nil {
				g[at] = m.GetGauge().GetValue()
			}
		}
	}
	return g, nil
}

// Attempts are those in the store that haven't ended, as a node has counted them last. It
// reports ok if it has.
type Attempts struct {
	InFlight, Held             int
	OldestInFlight, OldestHeld time.Duration
}

// Attempts reads them from the gauges.
func (g Gauges) Attempts() (a Attempts, ok bool) {
	held, ok := g["semel_attempts{held}"]
	age := func(state string) time.Duration {
		return time.Duration(g["semel_oldest_attempt_seconds{"+state+"}"] * float64(time.Second))
	}
	return Attempts{InFlight: int(g["semel_attempts{in_flight}"]), Held: int(held), OldestInFlight: age("in_flight"), OldestHeld: age("held")}, ok
}

// Check is a line of GET /readyz?verbose.
type Check struct {
	// Mark is + if all is well, ! if somebody should look at it, and - if the node should
	// get no traffic.
	Mark byte
	// Name is the check's; Detail is what it found, which only callers with a role are told.
	Name, Detail string
}

// Ready has the checks of readiness.
func (s *Service) Ready(ctx context.Context) ([]Check, error) {
	_, body, err := s.get(ctx, "/readyz?verbose", http.StatusOK, http.StatusServiceUnavailable)
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
