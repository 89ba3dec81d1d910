package ids_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/store/memstore"
)

// fault makes a bad implementation of a good one.
type fault struct {
	// groups must find it, and no others.
	groups string
	// before reports whether there is an effect beside the one that the implementation has.
	before func(running int64, body []byte) bool
	// after may change an answer, if the request has a text.
	after func(body []byte) []byte
	about string
	// silent is a decision without evidence.
	silent string
}

func replace(from, to string) func([]byte) []byte {
	return func(body []byte) []byte { return bytes.ReplaceAll(body, []byte(from), []byte(to)) }
}

var faults = map[string]fault{
	"each delivery has an effect": {groups: "duplicates", before: func(_ int64, body []byte) bool { return bytes.Contains(body, []byte(`"charge"`)) }},
	"deliveries at the same time have an effect each": {groups: "concurrent", before: func(running int64, body []byte) bool {
		return running > 1 && bytes.Contains(body, []byte(`"charge"`))
	}},
	"a replay has another summary": {groups: "replay", after: func(body []byte) []byte {
		if bytes.Contains(body, []byte(`"duplicate_replayed"`)) {
			return replace(`"done: `, `"done again: `)(body)
		}
		return body
	}},
	"a replay has another outcome reference": {groups: "replay collision", after: func(body []byte) []byte {
		if bytes.Contains(body, []byte(`"duplicate_replayed"`)) {
			return replace(`"sha256:`, `"sha256:0`)(body)
		}
		return body
	}},
	"a duplicate in progress is told that it failed":   {groups: "progress", about: `"slow"`, after: replace(`"processing"`, `"failed"`)},
	"a duplicate in progress is not told where to ask": {groups: "progress", after: replace(`"status_url"`, `"nowhere"`)},
	"a collision is said to be executed":               {groups: "collision", after: replace(`"idempotency_conflict"`, `"fine"`)},
	"a command is executed before it is confirmed": {groups: "confirmation", before: func(_ int64, body []byte) bool {
		return bytes.Contains(body, []byte(`"confirmed"`)) && !bytes.Contains(body, []byte(`"confirmation_token"`))
	}},
	"there is no evidence of replays":    {groups: "replay", silent: "duplicate_replayed"},
	"there is no evidence of collisions": {groups: "collision", silent: "conflict_rejected"},
	"a confirmed command asks again": {groups: "confirmation", after: func(body []byte) []byte {
		if bytes.Contains(body, []byte(`"idstest.confirmed"`)) && bytes.Contains(body, []byte(`"duplicate_replayed"`)) {
			return replace(`"executed"`, `"confirmation_required"`)(body)
		}
		return body
	}},
}

// plant puts a fault in front of a gateway.
func (f fault) plant(i implementation) implementation {
	var running atomic.Int64
	all, good, provider := i.evidence, i.gateway, "http://"+i.provider.Addr().String()
	i.evidence = func(ctx context.Context, commandID string) ([]map[string]any, error) {
		list, err := all(ctx, commandID)
		return slices.DeleteFunc(list, func(e map[string]any) bool { return e["decision"] == f.silent }), err
	}
	i.gateway = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has left
		}
		<-time.After(2 * time.Millisecond) // so that deliveries at once meet
		if f.before != nil && f.before(running.Load(), body) {
			if resp, err := http.Post(provider, "application/json", bytes.NewReader(body)); err == nil {
				resp.Body.Close()
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if f.after == nil || !bytes.Contains(body, []byte(f.about)) {
			good.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		good.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(f.after(answer.Body.Bytes()))
	})
	return i
}

// TestPlanted: a group that is red for another's fault sends people to the wrong place.
func TestPlanted(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			t.Cleanup(func() { _ = store.Close() })
			report := f.plant(implement(t, store)).judge(t)
			for group, state := range report.Groups {
				if (state == check.Red) != slices.Contains(strings.Fields(f.groups), group) {
					t.Errorf("%s is %s", group, state)
				}
			}
			for _, v := range report.Verdicts {
				if v.Outcome == check.Broken {
					t.Logf("%s: %s", v.ID, v.Saw)
				}
				if v.Outcome == check.Broken && (len(v.Transcript) == 0 || len(v.Reproduce) == 0 || len(v.Reproduce) > 10 || v.Saw == "" || v.Rests == "") {
					t.Errorf("%s has no transcript, no lines to reproduce it, or nothing that it rests on: %+v", v.ID, v)
				}
			}
		})
	}
}
