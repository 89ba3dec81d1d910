package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/internal/toolcall"
)

// Disconnect says what becomes of a call if its client leaves or cancels it.
type Disconnect string

// The rules. The protocol lets a server stop such a call, and nobody can know then how far it was.
const (
	// FinishCall lets the call go on, so that whoever asks again gets its result. The default.
	FinishCall Disconnect = "finish"
	// CancelCall cancels it. The call is held then, unless it had ended.
	CancelCall Disconnect = "cancel"
)

// Tool tells a gateway about one tool.
type Tool struct {
	// Operation has the policy of its calls. Without a Name, they have that of the gateway. Its
	// Confirmation asks a person about each call: by elicitation if the client can, or else
	// with a token in _meta for the client's program, which mustn't show it to its model.
	Operation semel.Operation
	// ReadOnly lets its calls pass unguarded: it changes nothing.
	ReadOnly bool
	// Fields are the arguments that tell one call from another, as JSON pointers, such as
	// /order_id: a call with the same ones is the same call, however often it comes. A call
	// that lacks one is refused. Calls with a key don't need them.
	Fields []string
	// KeyParameter is an argument that has the key of a call. Defaults to idempotency_key,
	// which is one for every tool.
	KeyParameter string
	// OnDisconnect defaults to [FinishCall].
	OnDisconnect Disconnect
	// NoHint leaves the tool's idempotentHint to the server; see [HintWindow].
	NoHint bool
	// VerifyWith lists tools that only read. A model finds out with them what happened if the
	// outcome of a call is unknown. Defaults to all that are ReadOnly here or by the server's word.
	VerifyWith []string
	// Reconcile settles calls with an unknown outcome. Optional.
	Reconcile *Reconcile
}

// policy is what holds for the calls of a tool.
type policy struct {
	Tool
	op     semel.Operation
	rules  judge.Rules
	fields []selector.Selector
	asking *asking // as Reconcile says; nil: nobody is asked
}

// declare registers the operations, and makes the policies of the tools.
func (g *Gateway) declare() error {
	answers, err := g.opts.Answers.Parse()
	if err != nil {
		return fmt.Errorf("mcp: Answers: %w", err)
	}
	given, declared := map[string]semel.Operation{}, map[string]semel.Operation{}
	make := func(t Tool) (*policy, error) {
		own := t.Operation.Name != ""
		if !own {
			t.Operation = g.opts.Operation
		}
		op, known := declared[t.Operation.Name]
		switch {
		case known && own && !reflect.DeepEqual(given[op.Name], t.Operation): // no function equals another
			return nil, fmt.Errorf("operation %s is declared twice, in two ways", op.Name)
		case !known:
			if op, err = door.Declare(g.engine, g.reconciling(g.withRetry(t.Operation))); err != nil {
				return nil, err
			}
			given[op.Name], declared[op.Name] = t.Operation, op
			follow := semel.Operation{Name: op.Name + taskSuffix, Window: op.Window, MaxWait: op.MaxWait, MaxResult: op.MaxResult, Share: op.Share, Authorize: op.Authorize, OnAbandoned: semel.RetryAbandoned}
			if err := g.engine.Register(follow); err != nil {
				return nil, err
			}
		}
		switch {
		case op.Class == semel.ReadOnly:
			return nil, errors.New("tool calls may change something, so their operation can't be of class I0")
		case op.Confirmation != nil && op.Confirmation.StepUp != nil:
			return nil, errors.New("a tool call has no place for the further proof that Confirmation.StepUp asks for")
		case t.OnDisconnect != "" && t.OnDisconnect != FinishCall && t.OnDisconnect != CancelCall:
			return nil, fmt.Errorf("OnDisconnect is %q, not %s or %s", t.OnDisconnect, FinishCall, CancelCall)
		}
		// A redirect isn't followed, so it is no result.
		p := &policy{Tool: t, op: op, rules: judge.Rules{Answers: answers, Financial: op.Financial, RedirectsUnclear: true}}
		for _, pointer := range t.Fields {
			s, err := toolcall.Field(pointer)
			if err != nil {
				return nil, fmt.Errorf("the field %q: %w", pointer, errors.Join(err, errors.New("write a JSON pointer to an argument")))
			}
			p.fields = append(p.fields, s)
		}
		if t.Reconcile != nil {
			if p.asking, err = t.Reconcile.parse(g.opts.Timeout); err != nil {
				return nil, fmt.Errorf("Reconcile: %w", err)
			}
		}
		return p, nil
	}
	if g.plain, err = make(Tool{}); err != nil {
		return fmt.Errorf("mcp: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(g.opts.Tools)) {
		if g.tools[name], err = make(g.opts.Tools[name]); err != nil {
			return fmt.Errorf("mcp: tool %s: %w", name, err)
		}
	}
	return nil
}

// withRetry has a failed call run again unless it moves money: the error of a tool mustn't use
// up the arguments of its call. An operation that the engine has stays as it is.
func (g *Gateway) withRetry(op semel.Operation) semel.Operation {
	if _, known := g.engine.Internal().Operation(op.Name); !known && op.OnFailure == "" && !op.Financial {
		op.OnFailure = semel.RetryFailure
	}
	return op
}

// policyOf is what holds for a tool.
func (g *Gateway) policyOf(name string) *policy {
	if p, ok := g.tools[name]; ok {
		return p
	}
	return g.plain
}

// passes reports whether the call needs no guard.
func (c *conversation) passes() bool {
	_, own := c.tools[c.asked.Name]
	return c.policy.ReadOnly || !own && c.opts.TrustHints && c.seen.Of(c.asked.Name).ReadOnly
}

// readers are the tools that only read, as the gateway or else the server says, sorted, at most ten.
func (g *Gateway) readers() (names []string) {
	names = g.seen.Readers()
	for name, p := range g.tools {
		if p.ReadOnly {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), 10)]
}

// list passes on the list of tools, and takes note of it. It reports whether the gateway has
// answered in place of the server.
func (g *Gateway) list(w http.ResponseWriter, req *request) (answered bool) {
	k := &sse.Sink{}
	if err := g.proxy.Send(k, body.With(req.in.Context(), req.in, req.body), ""); err != nil || k.Over {
		f := refusalFor(door.CodeUnreachable)
		f.write(w, req)
		return true
	}
	var text []byte
	if !k.Stream {
		text = g.described(k.Body.Bytes())
		k.Head.Set("Content-Length", strconv.Itoa(len(text)))
	}
	for event := k.Body.Event(); k.Stream && event != nil; event = k.Body.Event() {
		if data := sse.Data(event); jsonscan.Member(data, "result") != nil {
			event = append(sse.Fields(event), sse.JSON(g.described(data))...)
		}
		text = append(text, event...)
	}
	k.CopyHead(w, judge.EffectHeader)
	_, _ = w.Write(text) // a client who is gone asks again
	return false
}

// HintWindow is how long an operation must recognise calls, by its Remember or else its Window,
// before the gateway says of a tool that a client may repeat its calls (idempotentHint). A client
// that does so later would run the tool again.
const HintWindow = 90 * 24 * time.Hour

// described is an answer with descriptions of tools, which it takes note of. It makes true what
// they hint at: a tool whose repetition the gateway can always tell is idempotent. Nothing else
// changes, neither the order nor the spelling, because clients keep prompts by them.
func (g *Gateway) described(answer []byte) (text []byte) {
	at := 0
	for tool := range jsonscan.Items(jsonscan.At(answer, "result", "tools")) {
		d := toolcall.Describe(tool)
		if g.seen.Learn(d); !g.idempotent(&d) {
			continue
		}
		begin := jsonscan.Offset(answer, tool)
		text = append(append(text, answer[at:begin]...), toolcall.Hinted(tool)...)
		at = begin + len(tool)
	}
	return append(text, answer[at:]...)
}

// idempotent reports whether the gateway knows each repetition of a tool's calls: by arguments that
// every call has, never by the echo of one. A client that died after it had read the answer would
// repeat the call only because of the hint.
func (g *Gateway) idempotent(d *toolcall.Description) bool {
	p := g.policyOf(d.Name)
	keyed := len(p.fields) > 0 || slices.Contains(d.Required, cmp.Or(p.KeyParameter, toolcall.KeyArgument))
	return keyed && !p.NoHint && !p.ReadOnly && cmp.Or(p.op.Remember, p.op.Window) >= HintWindow
}
