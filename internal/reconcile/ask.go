package reconcile

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/finding"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/safehttp"
)

// maxAnswer is the longest answer that is read, in bytes.
const maxAnswer = 1 << 20

// Ask asks the source about a held call: see [settle.Ask]. It goes to the declared address and nowhere
// else, follows no redirect, and takes a bounded time.
func (st *Settler) Ask(ctx context.Context, held *semel.Record) (*finding.Finding, error) {
	f, err := st.find(ctx, held)
	if err != nil {
		return nil, fmt.Errorf("reconcile: %s: %w", st.source.Name, err)
	}
	return f, nil
}

func (st *Settler) find(ctx context.Context, held *semel.Record) (*finding.Finding, error) {
	values, err := st.values(held)
	if err != nil {
		return nil, err
	}
	secret, err := st.secret()
	if err != nil {
		return nil, err
	}
	var got *safehttp.Answer
	if st.source.Database {
		got, err = st.query(ctx, secret, values)
	} else {
		got, err = st.request(ctx, secret, values)
	}
	if err != nil {
		return nil, err
	}
	return st.judge(got, values, held)
}

// request asks over HTTP, if need be with a token that it asks for first.
func (st *Settler) request(ctx context.Context, secret string, values map[string]string) (*safehttp.Answer, error) {
	client := &safehttp.Client{MaxAnswer: maxAnswer}
	known := maps.Clone(values)
	known["secret"], known["basic"] = secret, base64.StdEncoding.EncodeToString([]byte(secret))
	if t := &st.source.Token; t.Path != "" {
		got, err := t.send(ctx, client, st.base, known)
		if err != nil {
			return nil, err
		}
		from, _ := selector.Parse(t.From, []selector.Source{selector.JSON}) // it was checked
		token, found, err := from.Find(&selector.Input{JSON: canonical(got.Body)})
		if got.Status != http.StatusOK || !found || err != nil || strings.ContainsAny(token, "\r\n") {
			return nil, fmt.Errorf("the answer to the request for a token has status %d, or no token", got.Status)
		}
		known["token"] = token
	}
	return st.source.Ask.send(ctx, client, st.base, known)
}

func (r *Request) send(ctx context.Context, client *safehttp.Client, base *url.URL, values map[string]string) (*safehttp.Answer, error) {
	value := func(name string) string { return values[name] }
	query := url.Values{}
	for _, pair := range r.Query {
		name, text, _ := strings.Cut(pair, "=")
		query.Set(name, fill(text, value, nil))
	}
	target := strings.TrimSuffix(base.String(), "/") + fill(r.Path, value, url.PathEscape)
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, strings.NewReader(fill(r.Body, value, inString)))
	if err != nil || req.URL.Host != base.Host {
		return nil, errors.New("the question has no valid address")
	}
	req.Header.Set("Accept", "application/json")
	for _, pair := range r.Headers {
		name, text, _ := strings.Cut(pair, "=")
		req.Header.Set(name, fill(text, value, nil))
	}
	return client.Do(req)
}

// inString makes a text fit into a string of JSON.
func inString(text string) string {
	quoted, _ := json.Marshal(text)
	return string(quoted[1 : len(quoted)-1])
}

// canonical is a body in canonical form; nil if it isn't JSON.
func canonical(body []byte) []byte {
	text, err := canon.Canonicalize(body, canon.Exact)
	if err != nil {
		return nil
	}
	return text
}

// judge says what an answer proves about a call. What the source doesn't describe is an error, for
// the operator to see: the call stays held.
func (st *Settler) judge(got *safehttp.Answer, values map[string]string, held *semel.Record) (*finding.Finding, error) {
	in := &selector.Input{Header: got.Header, JSON: canonical(got.Body)}
	for _, a := range st.source.Answers {
		if !a.applies(got.Status, in, values) {
			continue
		}
		name := st.source.Name
		switch a.Proves {
		case "done":
			text, _ := json.Marshal(map[string]any{ // strings
				"summary": "The call took effect. Its own answer was lost; this is what " + name + " says.",
				"outcome": st.result(in),
			})
			return &finding.Finding{Outcome: "completed", Status: http.StatusOK, Headers: http.Header{"Content-Type": {"application/json"}}, Body: text}, nil
		case "refused":
			const status = http.StatusUnprocessableEntity
			text, _ := json.Marshal(map[string]any{"title": http.StatusText(status), "status": status, "code": "refused", "detail": name + " says that it was refused."}) // strings and a number
			return &finding.Finding{
				Outcome: "rejected", Status: status, Headers: http.Header{"Content-Type": {"application/problem+json"}}, Body: text, Message: name + " says that it was refused",
			}, nil
		case "absent":
			if !settle.Waited(held, st.Absence()) {
				return &finding.Finding{Outcome: finding.Unknown}, nil
			}
			return &finding.Finding{Outcome: "aborted", Message: name + " has no trace of it"}, nil
		}
		return &finding.Finding{Outcome: finding.Unknown}, nil
	}
	return nil, fmt.Errorf("its answer, with status %d, is none that proves anything", got.Status)
}

func (a *Answer) applies(status int, in *selector.Input, values map[string]string) bool {
	if a.Status != status {
		return false
	}
	for _, text := range a.When {
		c, err := selector.ParseCondition(fill(text, func(name string) string { return values[name] }, nil))
		if err != nil || !c.Holds(in) {
			return false
		}
	}
	return true
}

// result is what duplicates get to know of an answer: never all of it, which may have secrets.
func (st *Settler) result(in *selector.Input) map[string]string {
	known := map[string]string{"source": st.source.Name}
	for _, pair := range st.source.Result {
		name, where, _ := strings.Cut(pair, "=")
		s, err := selector.Parse(where, []selector.Source{selector.JSON})
		if err != nil {
			continue
		}
		if text, found, err := s.Find(in); found && err == nil {
			known[name] = text
		}
	}
	return known
}
