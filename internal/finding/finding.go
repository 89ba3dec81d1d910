// Package finding asks an upstream about a held call and reads its answer, for all doors.
package finding

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/safehttp"
)

// Finding is an upstream's JSON about a call.
type Finding struct {
	// Outcome is completed, rejected or failed, with the answer that the caller would have got;
	// aborted, if the call hasn't arrived and never will, so that the next delivery is sent on;
	// or unknown, to be asked again later.
	Outcome string `json:"outcome"`
	// Status, Headers and Body are the answer. Status defaults to 200 if completed, 422 if
	// rejected, and 500 if failed. Body is base64.
	Status  int         `json:"status,omitempty"`
	Headers http.Header `json:"headers,omitempty"`
	Body    []byte      `json:"body,omitempty"`
	// Message says why it was rejected or failed.
	Message string `json:"message,omitempty"`
}

// Unknown is the outcome of a call to ask about again.
const Unknown = "unknown"

// outcomes has all outcomes, with the default status of the answer.
var outcomes = map[string]int{
	"completed": http.StatusOK, "rejected": http.StatusUnprocessableEntity, "failed": http.StatusInternalServerError, "aborted": 0, Unknown: 0,
}

// Ask asks for a finding. Only an answer with status 200 counts: anything else may come from
// something in between, such as a login page.
func Ask(client *safehttp.Client, r *http.Request) (*Finding, error) {
	r.Header.Set("Accept", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("the answer has status %d, not 200", answer.Status)
	}
	return Read(answer.Body)
}

// Read reads a finding and fills in its status. An ambiguous text, such as one with two
// outcomes, is an error. Member names must match exactly: package json takes Outcome for
// outcome, and so the last of both.
func Read(text []byte) (*Finding, error) {
	if _, err := canon.Canonicalize(text, canon.Exact); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, errors.New("the answer is no finding: it is no object")
	}
	for name := range members {
		if !slices.Contains([]string{"outcome", "status", "headers", "body", "message"}, name) {
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
	usual, known := outcomes[f.Outcome]
	switch {
	case !known:
		return nil, fmt.Errorf("the outcome is %q, not completed, rejected, failed, aborted or unknown", f.Outcome)
	case usual == 0:
		f.Status = 0
	case f.Status == 0:
		f.Status = usual
	case f.Status < 200 || f.Status > 999:
		return nil, fmt.Errorf("%d is not the status of an answer", f.Status)
	}
	return f, nil
}
