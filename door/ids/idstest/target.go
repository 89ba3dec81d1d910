package idstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Target is an implementation under test.
type Target struct {
	// URL is the address to POST envelopes to. Required.
	URL string
	// Provider is the system that the commands have their effects on. Required.
	Provider *Provider
	// Tenant and Actor are the identity that Header authenticates. They default to "acme"
	// and "alice".
	Tenant, Actor string
	// Header goes with every request.
	Header http.Header
	// Client sends the requests. Defaults to a client that connects for each request, so that
	// it resends nothing behind the test's back.
	Client *http.Client
	// Read reads the answer to a delivery. Defaults to reading the members that the
	// specification names.
	Read func(status int, header http.Header, body []byte) (Answer, error)
	// Confirm changes an envelope so that it confirms with the token. Defaults to
	// setting its member confirmation_token.
	Confirm func(envelope map[string]any, token string)
	// Evidence returns an auditor's view of a command, in the order in which it happened. It
	// may wait until the evidence is there. Required, unless WithoutEvidence says that the
	// implementation has none; then only the collision test fails.
	Evidence        func(ctx context.Context, commandID string) ([]Evidence, error)
	WithoutEvidence bool
	// Key derives the key of an envelope with the registry of the vectors, or without one. If
	// it is nil the vectors are not tried, and the test says so.
	Key func(envelope []byte, registered bool) (canonical, key string, err error)
}

// Answer is the answer to a delivery.
type Answer struct {
	HTTP           int             `json:"-"`
	Status         string          `json:"status"`
	Decision       string          `json:"decision"`
	Reason         string          `json:"reason"`
	CommandID      string          `json:"command_id"`
	CorrelationID  string          `json:"correlation_id"`
	IdempotencyKey string          `json:"idempotency_key"`
	Summary        string          `json:"summary"`
	Outcome        json.RawMessage `json:"outcome"`
	OutcomeRef     string          `json:"outcome_ref"`
	StatusURL      string          `json:"status_url"`
	Confirmation   struct {
		Token string `json:"token"`
	} `json:"confirmation"`
}

// Evidence is one artifact about a command.
type Evidence struct {
	Type           string
	Decision       string
	Executed       bool
	CommandID      string
	IdempotencyKey string
	OutcomeRef     string
	// Fingerprints of the envelopes that it is about.
	Fingerprints []string
}

func (tg *Target) fill() {
	tg.Tenant, tg.Actor = cmp.Or(tg.Tenant, "acme"), cmp.Or(tg.Actor, "alice")
	tg.Client = cmp.Or(tg.Client, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute})
	if tg.Read == nil {
		tg.Read = read
	}
	if tg.Confirm == nil {
		tg.Confirm = func(envelope map[string]any, token string) { envelope["confirmation_token"] = token }
	}
}

// envelope makes one of the kit's commands, with a target of its own. It has no delivery's ids:
// each delivery brings its own.
func (tg *Target) envelope(action, target string, args map[string]any) map[string]any {
	return map[string]any{
		"tenant_id": tg.Tenant, "actor_id": tg.Actor,
		"intent": map[string]any{"entity": "idstest", "action": action, "target": target},
		"args":   args,
	}
}

func with(envelope map[string]any, members map[string]any) map[string]any {
	e := maps.Clone(envelope)
	maps.Copy(e, members)
	return e
}

// deliver delivers an envelope as a new message, and returns the answer.
func (tg *Target) deliver(t testing.TB, envelope map[string]any) Answer {
	t.Helper()
	a, err := tg.post(envelope)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// post is deliver for use in any goroutine.
func (tg *Target) post(envelope map[string]any) (Answer, error) {
	body, err := json.Marshal(envelope)
	if err != nil {
		return Answer{}, err
	}
	return tg.request(http.MethodPost, tg.URL, body)
}

func (tg *Target) request(method, url string, body []byte) (Answer, error) {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	maps.Copy(req.Header, tg.Header)
	req.Header.Set("Content-Type", "application/json")
	resp, err := tg.Client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, err
	}
	a, err := tg.Read(resp.StatusCode, resp.Header, text)
	if err != nil {
		return Answer{}, fmt.Errorf("status %d: %w in %s", resp.StatusCode, err, text)
	}
	a.HTTP = resp.StatusCode
	return a, nil
}

// read reads the members that the specification names. A problem document (RFC 9457)
// is an answer without a status.
func read(_ int, header http.Header, body []byte) (Answer, error) {
	if media, _, _ := strings.Cut(header.Get("Content-Type"), ";"); media == "application/problem+json" {
		var p struct {
			Code string `json:"code"`
		}
		err := json.Unmarshal(body, &p)
		return Answer{Reason: p.Code}, err
	}
	var a Answer
	err := json.Unmarshal(body, &a)
	return a, err
}
