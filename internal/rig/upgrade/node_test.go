package upgrade

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// world is a store that several programs use, in turns or at the same time.
type world struct {
	t     *testing.T
	dir   string
	store string
	from  string // the commit that fills the store
	up    *upstream
}

const secret = "a secret of thirty-two characters"

const operations = `
operations:
  - {name: hold, lease: 2s}
  - {name: retry, lease: 2s, on_abandoned: retry}
  - {name: long, lease: 1h}
  - {name: again, on_failure: retry}
  - {name: ledger, lease: 2s, effects: [charge]}
  - {name: ledger.retry, lease: 2s, effects: [charge], on_abandoned: retry}
  - {name: plain, on_failure: replay, lease: 1h}
  - {name: functions, on_failure: replay}
`

const sequences = `  - {name: numbers, sequenced: true, lease: 1h, on_abandoned: retry}
  - {name: messages}
a2a: [{path: /agent, upstream: %[1]s/agent, operation: messages}]
`

const doors = `
dispatch:
  destinations:
    - {name: takes, url: %[1]s/message/ok, operations: ["*"], allow_private: true}
    - {name: refuses, url: %[1]s/message/gone, operations: ["*"], allow_private: true}
routes: [{match: "POST /plain/{what}", upstream: "%[1]s", operation: plain}]
forrst: [{path: /forrst, upstream: %[1]s/forrst, functions: [{name: pay, versions: [1.0.0], operation: functions}]}]
webhooks:
  - {name: gs, path: /gs, source: github, secret_files: [secret], upstream: %[1]s/gs/ok, mode: sync}
  - {name: ga, path: /ga, source: github, secret_files: [secret], upstream: %[1]s/ga/ok}
  - {name: sh, path: /sh, source: shopify, secret_files: [secret], upstream: %[1]s/sh/ok, mode: sync}
  - {name: st, path: /st, source: stripe, secret_files: [secret], upstream: %[1]s/st/ok, mode: sync}
activitypub:
  - actors_url: https://social.example/actors/{actor}
    actors: [alice]
    upstream: %[1]s/inbox/ok
    instances: [{host: there.example, unsigned: allow}]
`

// commands keep evidence, which not every store can.
const commands = `
commands: {registry: registry.yaml}
evidence: {key_file: key}
`

const registry = `version: 1
commands:
  - {entity: order, action: pay, rights: {execute: [pay]}, handler: {url: '%[1]s/command/ok'}}
  - {entity: order, action: lose, rights: {execute: [pay]}, handler: {url: '%[1]s/command/broken'}}
  - entity: order
    action: retry
    class: I3
    shields: [{strategy: S1}]
    on_abandoned: retry
    rights: {execute: [pay]}
    handler: {url: '%[1]s/retried/broken'}
  - {entity: order, action: confirm, confirmation: {ttl: 5m}, rights: {execute: [pay]}, handler: {url: '%[1]s/confirmed/ok'}}
`

// newWorld writes the configuration that all programs run by.
func newWorld(t *testing.T, from, store string) *world {
	w := &world{t: t, dir: t.TempDir(), store: store, from: from, up: newUpstream(t)}
	migrate, more := "", ""
	if w.served() {
		migrate = ", migrate: true"
	}
	if w.numbers() {
		more = fmt.Sprintf(sequences, w.up.URL)
	}
	more += fmt.Sprintf(doors, w.up.URL)
	if w.evidence() {
		more += commands
	}
	w.write("secret", secret)
	w.write("token", "token")
	w.write("registry.yaml", fmt.Sprintf(registry, w.up.URL))
	w.write("semel.yaml", fmt.Sprintf(`
listen: {address: '127.0.0.1:0'}
admin: {address: '127.0.0.1:0'}
store: {url: '%s'%s}
limits: {shutdown_grace: 1s}
purge: {interval: 1s}
auth: {default_tenant: acme, tokens: [{name: alice, tenant: acme, roles: [admin], rights: [pay], sha256: %x}]}
`, store, migrate, sha256.Sum256([]byte("token")))+operations+more)
	keygen := exec.Command(program(t, from), "evidence", "keygen", "--origin", "example.com/log", "--out", "key")
	keygen.Dir = w.dir
	public, err := keygen.Output()
	if err != nil {
		t.Fatal(err)
	}
	w.write("key.pub", string(public))
	return w
}

// evidence reports whether the store can keep a log of evidence.
func (w *world) evidence() bool { return !strings.HasPrefix(w.store, "redis") }

// numbers reports whether the program that fills the store has numbered calls.
func (w *world) numbers() bool { return w.from != first }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// node is a running program.
type node struct {
	t *testing.T
	*stage.Process
	commit string // empty: of this tree
}

// start starts the program of a commit, or that of this tree.
func (w *world) start(commit string) *node {
	w.t.Helper()
	p, err := stage.Start(w.t.Context(), w.serve(commit))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Kill)
	return &node{w.t, p, commit}
}

func (w *world) serve(commit string) *exec.Cmd {
	cmd := exec.Command(program(w.t, commit), "serve", "--json", "--config", "semel.yaml")
	cmd.Dir = w.dir
	return cmd
}

// stop ends a node as an operator does.
func (n *node) stop() {
	n.t.Helper()
	if err := n.Terminate(); err != nil {
		n.t.Fatal(err, n.Quote())
	}
}

// answer is what a delivery got.
type answer struct {
	Status int
	Code   string // a decision, a code, or what an answer calls its status
	Body   string // of an outcome; of a refusal nothing, because the words may change
	raw    []byte
}

// request is a delivery.
type request struct {
	admin  bool
	path   string
	body   string
	header map[string]string
}

func (n *node) send(q request) answer {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 30*time.Second)
	defer cancel()
	a, err := n.try(ctx, q)
	if err != nil {
		n.t.Fatal(q.path, err, n.Quote())
	}
	return a
}

func (n *node) try(ctx context.Context, q request) (a answer, err error) {
	base, method := n.URL, http.MethodPost
	if q.admin {
		base = n.AdminURL
	}
	if q.body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, method, base+q.path, strings.NewReader(q.body))
	if err != nil {
		return a, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer token")
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	a.Status = res.StatusCode
	if a.raw, err = io.ReadAll(res.Body); err != nil {
		return a, err
	}
	a.read()
	return a, nil
}

// read takes from an answer what has to stay the same.
func (a *answer) read() {
	var said struct {
		Decision, Code, Status json.RawMessage
		Record                 struct {
			Result json.RawMessage
			Error  json.RawMessage
		}
		Result  json.RawMessage
		Message string // of an inbox
		Errors  []struct{ Code string }
	}
	_ = json.Unmarshal(a.raw, &said) // what isn't JSON has none of it
	for _, word := range []json.RawMessage{said.Decision, said.Code, said.Status} {
		if a.Code == "" && len(word) > 0 && word[0] == '"' {
			a.Code = strings.Trim(string(word), `"`)
		}
	}
	if len(said.Errors) > 0 {
		a.Code = said.Errors[0].Code
	}
	switch {
	case len(said.Record.Result)+len(said.Record.Error) > 0:
		a.Body = string(said.Record.Result) + string(said.Record.Error)
	case len(said.Result) > 0:
		a.Body = string(said.Result)
	case said.Message != "":
		a.Body = said.Message
	case a.Code == "":
		a.Body = string(bytes.TrimSpace(a.raw))
	}
}
