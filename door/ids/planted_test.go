package ids_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/door/ids/idstest"
	"github.com/semelhq/semel/store/memstore"
)

// fault is a client that makes a good implementation look like a bad one.
type fault struct {
	// number is that of the test that must find it.
	number string
	// before may have an effect beside the one that the implementation has.
	before func(p *idstest.Provider, running int64, body []byte)
	// after may change an answer.
	after func(body []byte) []byte
	// silent is a decision of which there is no evidence.
	silent string
}

// twice has an effect of a command beside the implementation.
func twice(p *idstest.Provider, body []byte) {
	resp, err := http.Post(p.URL, "application/json", bytes.NewReader(body))
	if err == nil {
		resp.Body.Close()
	}
}

func replace(from, to string) func([]byte) []byte {
	return func(body []byte) []byte { return bytes.ReplaceAll(body, []byte(from), []byte(to)) }
}

var faults = map[string]fault{
	"each delivery has an effect": {number: "1", before: func(p *idstest.Provider, _ int64, body []byte) {
		if bytes.Contains(body, []byte(`"charge"`)) {
			twice(p, body)
		}
	}},
	"deliveries at the same time have an effect each": {number: "2", before: func(p *idstest.Provider, running int64, body []byte) {
		if running > 1 && bytes.Contains(body, []byte(`"charge"`)) {
			twice(p, body)
		}
	}},
	"a replay has another summary": {number: "3", after: func(body []byte) []byte {
		if bytes.Contains(body, []byte(`"duplicate_replayed"`)) {
			return replace(`"done: `, `"done again: `)(body)
		}
		return body
	}},
	"a replay has another outcome reference": {number: "3", after: func(body []byte) []byte {
		if bytes.Contains(body, []byte(`"duplicate_replayed"`)) {
			return replace(`"sha256:`, `"sha256:0`)(body)
		}
		return body
	}},
	"a duplicate in progress is told that it failed":   {number: "4", after: replace(`"processing"`, `"failed"`)},
	"a duplicate in progress is not told where to ask": {number: "4", after: replace(`"status_url"`, `"nowhere"`)},
	"a collision is said to be executed":               {number: "5", after: replace(`"idempotency_conflict"`, `"fine"`)},
	"a command is executed before it is confirmed": {number: "6", before: func(p *idstest.Provider, _ int64, body []byte) {
		if bytes.Contains(body, []byte(`"confirmed"`)) && !bytes.Contains(body, []byte(`"confirmation_token"`)) {
			twice(p, body)
		}
	}},
	"there is no evidence of replays":    {number: "3", silent: "duplicate_replayed"},
	"there is no evidence of collisions": {number: "5", silent: "conflict_rejected"},
	"a confirmed command asks again": {number: "6", after: func(body []byte) []byte {
		if bytes.Contains(body, []byte(`"idstest.confirmed"`)) && bytes.Contains(body, []byte(`"duplicate_replayed"`)) {
			return replace(`"executed"`, `"confirmation_required"`)(body)
		}
		return body
	}},
}

// faultyClient is the transport of a fault.
type faultyClient struct {
	fault
	provider *idstest.Provider
	base     http.RoundTripper
	running  *atomic.Int64
}

func (c faultyClient) RoundTrip(req *http.Request) (*http.Response, error) {
	running := c.running.Add(1)
	defer c.running.Add(-1)
	if c.before != nil && req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		c.before(c.provider, running, body)
	}
	resp, err := c.base.RoundTrip(req)
	if err != nil || c.after == nil {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(c.after(body)))
	return resp, nil
}

const plantedVariable = "SEMEL_IDS_PLANTED"

// TestPlanted runs the kit against each fault, in another process, which has to fail
// in the test of its number.
func TestPlanted(t *testing.T) {
	if name := os.Getenv(plantedVariable); name != "" {
		store := memstore.New()
		tg := serve(t, store)
		tg.Client = &http.Client{Transport: faultyClient{faults[name], tg.Provider, &http.Transport{DisableKeepAlives: true}, new(atomic.Int64)}}
		all := tg.Evidence
		tg.Evidence = func(ctx context.Context, commandID string) ([]idstest.Evidence, error) {
			list, err := all(ctx, commandID)
			return slices.DeleteFunc(list, func(ev idstest.Evidence) bool { return ev.Decision == faults[name].silent && ev.Decision != "" }), err
		}
		idstest.Run(t, tg)
		return
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestPlanted$", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), plantedVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestPlanted/"+f.number+"_") {
				t.Errorf("test %s did not find it: %v\n%s", f.number, err, out)
			}
		})
	}
}
