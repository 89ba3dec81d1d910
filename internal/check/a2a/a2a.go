// Package a2a judges agents that speak A2A over JSON-RPC, by the tasks that their senders hear of, and
// by effects if the agent has them on the check.
package a2a

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/sse"
)

//go:embed requirements.yaml
var requirements []byte

// Kit is the kit of what the idempotency map says of A2A.
var Kit = check.Kit{
	Requirements: requirements,
	Short:        "Judge an agent that speaks A2A",
	Long: `Send messages to an agent over A2A's JSON-RPC, by its version 1.0 or 0.3, in the ways in
which clients retry, and say for each sentence whether it is kept, and on which clause it
rests. A2A itself allows agents to recognise a message by its messageId, and the
idempotency map demands it.

URL is where messages are posted. The check compares the tasks that it hears of. An agent
that sends the text of each message by POST to the address of --provider has its effects
counted there, too.`,
	Example: `  semel check a2a http://127.0.0.1:8480/agent --header "Authorization: Bearer $TOKEN"`,
	Flags: []check.Flag{
		check.ProviderFlag,
		{Name: "text", Default: "Charge {{unique}}", Usage: "`text`; {{unique}} is new in each"},
	},
	Start: start,
}

// version says how a version of A2A writes the same things.
type version struct{ name, send, stream, get, message string }

var versions = []version{
	{"1.0", "SendMessage", "SendStreamingMessage", "GetTask", `"messageId":%q,"role":"ROLE_USER","parts":[{"text":%q}]`},
	{"0.3", "message/send", "message/stream", "tasks/get", `"kind":"message","messageId":%q,"role":"user","parts":[{"kind":"text","text":%q}]`},
}

// message may be sent in many requests. Its name is in its text, and it names a task if it continues
// one.
type message struct{ id, name, task string }

func newMessage() message { return message{rand.Text(), check.Name(), ""} }

// answer is the task that all events tell of, or the one message in its place.
type answer struct {
	task, said string
	fault      error
}

// heard is what two answers to one message have in common.
func (a answer) heard() string { return cmp.Or(a.task, a.said) }

// String is what an answer comes to.
func (a answer) String() string {
	switch {
	case a.fault != nil:
		return "no task (" + a.fault.Error() + ")"
	case a.task == "":
		return "the message " + a.said
	}
	return "the task " + a.task
}

// read reads an answer of JSON-RPC, or a stream of them.
func read(got check.Answer) (a answer) {
	texts := [][]byte{[]byte(got.Body)}
	if strings.HasPrefix(got.Header.Get("Content-Type"), "text/event-stream") {
		texts = nil
		for _, event := range sse.Split(got.Body) {
			texts = append(texts, sse.Data(event))
		}
	}
	a.fault = got.Err
	for _, text := range texts {
		find := func(paths ...string) (found string) {
			for _, path := range paths {
				s, _ := jsonscan.Text(jsonscan.At(text, strings.Split("result."+path, ".")...))
				found = cmp.Or(found, s)
			}
			return found
		}
		task := find("task.id", "statusUpdate.taskId", "artifactUpdate.taskId", "taskId", "id")
		a.said = cmp.Or(a.said, find("message.messageId", "messageId"))
		switch problem := jsonscan.At(text, "error"); {
		case problem != nil:
			a.fault = fmt.Errorf("HTTP %d, %.200s", got.Status, problem)
		case task != "" && a.task != "" && task != a.task:
			a.fault = fmt.Errorf("it tells of the tasks %s and %s", a.task, task)
		default:
			a.task = cmp.Or(a.task, task)
		}
	}
	if a.fault == nil && a.heard() == "" {
		a.fault = fmt.Errorf("HTTP %d, %.200q", got.Status, got.Body)
	}
	return a
}

// kit is one run.
type kit struct {
	*check.Bench
	version
	ways map[string]post // to send messages, and leave: streams too, if the agent has them
}

// post sends a request, and waits for the answer or leaves.
type post func(ctx context.Context, name, document string, own http.Header) check.Answer

// ask sends a request by an id of JSON-RPC.
func (k *kit) ask(ctx context.Context, send post, id, method, name, params string) answer {
	return read(send(ctx, name, fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":{%s}}`, id, method, params), http.Header{"A2a-Version": {k.name}}))
}

// params are a message, in the form of the version.
func (k *kit) params(m message) string {
	text := fmt.Sprintf(k.message, m.id, strings.ReplaceAll(k.Flag("text"), "{{unique}}", m.name))
	if m.task != "" {
		text += fmt.Sprintf(`,"taskId":%q`, m.task)
	}
	return `"message":{` + text + "}"
}

// deliver sends a message by a new request.
func (k *kit) deliver(ctx context.Context, m message, method string) answer {
	return k.ask(ctx, k.Post, rand.Text(), method, m.id, k.params(m))
}

// settle sends a message until the agent has an answer to it.
func (k *kit) settle(ctx context.Context, m message, method string) answer {
	return check.Until(ctx, k.Bench, func() (answer, bool) {
		a := k.deliver(ctx, m, method)
		return a, a.fault == nil
	})
}
