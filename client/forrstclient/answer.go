package forrstclient

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/safehttp"
)

// answer is an answer from the service.
type answer struct {
	Protocol   struct{ Name string } `json:"protocol"`
	ID         *string               `json:"id"`
	Result     json.RawMessage       `json:"result"`
	Errors     forrst.Errors         `json:"errors"`
	Extensions []struct {
		URN  string          `json:"urn"`
		Data json.RawMessage `json:"data"`
	} `json:"extensions"`

	text   []byte
	status int // of HTTP
	header http.Header
}

// read reads an answer to the request with an id. Anything else comes from something in front
// of the service, or is about another request, and proves nothing about this call.
func read(resp *http.Response, id string, text []byte) (*answer, error) {
	a := &answer{text: text, status: resp.StatusCode, header: resp.Header}
	err := json.Unmarshal(text, a)
	if err != nil || a.Protocol.Name != "forrst" || slices.Contains(a.Errors, nil) || a.ID != nil && *a.ID != id || len(a.Errors) == 0 && (a.ID == nil || a.Result == nil) {
		return nil, fmt.Errorf("the answer with status %d isn't one of Forrst to this request", resp.StatusCode)
	}
	return a, nil
}

// data reads the data of one of Forrst's own extensions into v, and reports whether it is there.
func (a *answer) data(name string, v any) bool {
	for _, x := range a.Extensions {
		if strings.HasSuffix(x.URN, ":ext:"+name) {
			return json.Unmarshal(x.Data, v) == nil
		}
	}
	return false
}

// idempotency returns what the answer says about its key.
func (a *answer) idempotency() (status, original string) {
	var said struct {
		Status   string `json:"status"`
		Original string `json:"original_request_id"`
	}
	a.data("idempotency", &said)
	return said.Status, said.Original
}

// recorded reports whether a refusal comes from the call's record, so that it holds for earlier
// requests with the key as well.
func (a *answer) recorded() bool {
	switch status, _ := a.idempotency(); status {
	case "processed", "cached", "conflict":
		return true
	}
	code := a.Errors[0].Code // by definition, even without the extension
	return code == forrst.IdempotencyConflict || code == forrst.IdempotencyProcessing
}

// open reports whether a refusal proves nothing, so that its request may have run the function.
func (a *answer) open() bool {
	rules := judge.Rules{Financial: true} // for all we know
	return slices.ContainsFunc(a.Errors, func(e *forrst.Error) bool {
		return rules.Forrst(string(e.Code), a.status, a.header).Verdict == judge.Unknown
	})
}

// advice says whether to try again, and after which pause: it takes it from the details of the
// error (FOR-PROC.1), the retry extension, or the header, or else uses own.
func (a *answer) advice(try int, own time.Duration) (pause time.Duration, again bool) {
	var retry forrst.Retry
	again = a.data("retry", &retry) && retry.Allowed && (retry.MaxAttempts == 0 || try <= retry.MaxAttempts)
	if retry.MaxAttempts == 0 && a.Errors[0].Code == forrst.IdempotencyProcessing {
		again = true // by definition, even without the extension
	}
	var details struct {
		Errors []struct {
			Details struct {
				RetryAfter *forrst.Duration `json:"retry_after"`
			} `json:"details"`
		} `json:"errors"`
	}
	_ = json.Unmarshal(a.text, &details) // details in another form don't count
	asked, given := safehttp.RetryAfter(a.header.Get("Retry-After"), time.Now())
	switch {
	case len(details.Errors) > 0 && details.Errors[0].Details.RetryAfter != nil:
		return lasts(details.Errors[0].Details.RetryAfter), again
	case retry.After != nil && retry.Strategy == "exponential":
		return lasts(retry.After) << min(try-1, 16), again
	case retry.After != nil:
		return lasts(retry.After), again
	case given:
		return asked, again
	}
	return own, again
}

// lasts converts a duration on the wire. One with an unknown unit, or without end, lasts longer
// than anybody waits.
func lasts(d *forrst.Duration) time.Duration {
	unit := map[string]time.Duration{"millisecond": time.Millisecond, "second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}[d.Unit]
	if unit == 0 || d.Value < 0 || d.Value > int64(24*time.Hour/unit) {
		return 24 * time.Hour
	}
	return time.Duration(d.Value) * unit
}

// ownPause returns the pause if nobody asks for one: random, with a bound that doubles.
func ownPause(try int) time.Duration {
	return rand.N(min(client.DefaultMinPause<<min(try-1, 16), client.DefaultMaxPause))
}
