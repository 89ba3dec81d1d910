package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/finding"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/internal/toolcall"
	"github.com/semelhq/semel/store"
)

// attributeReconcile is the name under which a record keeps the arguments for [Reconcile].
const attributeReconcile = "reconcile"

// Reconcile settles the calls of a tool that nobody knows the outcome of: the gateway asks another
// tool of the same server, which only reads, until that says what happened. The server has to speak [Modern],
// or need no session.
//
// Duplicates of a call that took effect get the content that the other tool has returned.
type Reconcile struct {
	// Tool is the tool that only reads, such as get_refund.
	Tool string
	// Arguments of Tool, by name, each as a JSON pointer to an argument of the call, such as
	// id: /order_id. The record of a call keeps them, up to 1 KiB.
	Arguments map[string]string
	// Done and Absent are conditions on the result of Tool, as [judge.Answers] has them on a body,
	// such as json:/structuredContent/status=refunded. One of Done proves that the call took effect,
	// and one of Absent that it hasn't. A result with isError never proves Done.
	Done, Absent []string
	// AbsentAfter is how long a call may still be on its way: before that, Absent proves nothing.
	// After it, the next delivery runs again. Required with Absent, and at least as long as
	// [GatewayOptions].Timeout.
	AbsentAfter time.Duration
	// Header is sent in place of a caller's credential.
	Header http.Header
}

// asking is a [Reconcile] that was read.
type asking struct {
	*Reconcile
	pointers map[string]selector.Pointer // of Arguments
	finds    *judge.Named                // the conditions
}

// parse checks the settings, and reads them.
func (r *Reconcile) parse(timeout time.Duration) (_ *asking, err error) {
	a := &asking{Reconcile: r, pointers: map[string]selector.Pointer{}}
	on200 := func(list []string) (entries []string) {
		for _, text := range list {
			entries = append(entries, "200 "+text)
		}
		return entries
	}
	for name, pointer := range r.Arguments {
		if a.pointers[name], err = selector.ParsePointer(pointer); err != nil || pointer == "" {
			return nil, fmt.Errorf("the argument %s is %q, which isn't a JSON pointer to an argument", name, pointer)
		}
	}
	switch {
	case r.Tool == "" || len(r.Done)+len(r.Absent) == 0:
		return nil, errors.New("it needs a Tool, and Done or Absent")
	case slices.ContainsFunc(slices.Concat(r.Done, r.Absent), func(text string) bool { return !strings.HasPrefix(text, "json:") }):
		return nil, errors.New("conditions of Done and Absent are such as json:/structuredContent/status=refunded")
	case len(r.Absent) > 0 && r.AbsentAfter < timeout:
		return nil, fmt.Errorf("its AbsentAfter is shorter than the %v that a tool may be silent, so what is absent may still come", timeout)
	}
	a.finds, err = judge.Answers{Final: on200(r.Done), NotExecuted: on200(r.Absent)}.Parse()
	return a, err
}

// arguments are what a record keeps to ask by, of those of the call; empty if it lacks one.
func (a *asking) arguments(of []byte) string {
	found := map[string]json.RawMessage{}
	for name, pointer := range a.pointers {
		value, ok := pointer.Value(of)
		if !ok {
			return ""
		}
		found[name] = value
	}
	text, _ := json.Marshal(found) // strict JSON
	if (store.Attributes{attributeReconcile: string(text)}).Validate() != nil {
		return "" // it is too long
	}
	return string(text)
}

// reconciling is an operation with the reconciler of its tools, if they have one.
func (g *Gateway) reconciling(op semel.Operation) semel.Operation {
	asked := func(t Tool) bool {
		return t.Reconcile != nil && cmp.Or(t.Operation.Name, g.opts.Operation.Name) == op.Name
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(g.opts.Tools)), asked) {
		return op
	}
	if known, ok := g.engine.Internal().Operation(op.Name); ok {
		op = known
	}
	next := op.Reconcile
	op.Reconcile = func(ctx context.Context, held semel.Record) (s semel.Settlement, err error) {
		p := g.policyOf(held.Attributes[attributeTool])
		switch {
		case held.Door == Name && p.asking != nil:
			return settle.By(func(ctx context.Context, held *semel.Record) (*finding.Finding, error) {
				return g.reconcile(ctx, p, held)
			}, settle.Form{
				Who: "the tool " + p.Reconcile.Tool, Effect: CallEffect,
				Result: func(f *finding.Finding) semel.Result { return outcome{Result: f.Body}.recorded() },
			})(ctx, held)
		case next != nil:
			return next(ctx, held)
		}
		return s, nil
	}
	return op
}

// reconcile asks the server by a tool that reads. Only an answer to the question counts, which has
// its id: an error, or a status of something in between, proves nothing.
func (g *Gateway) reconcile(ctx context.Context, p *policy, held *semel.Record) (*finding.Finding, error) {
	arguments := held.Attributes[attributeReconcile]
	if arguments == "" {
		return nil, errors.New("mcp: the record has no arguments to ask by")
	}
	in, err := http.NewRequestWithContext(ctx, http.MethodPost, g.upstream.String(), nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(in.Header, p.Reconcile.Header)
	in.Header[versionHeader], in.Header["Content-Type"] = []string{Modern}, []string{"application/json"}
	in.Header["Accept"] = []string{"application/json, text/event-stream"}
	as := request{in: in, modern: true, params: []byte(`{"_meta":{"` + capabilitiesMember + `":{}}}`)}
	result, _, status := g.ask(ctx, &as, callMethod, p.Reconcile.Tool, map[string]any{"name": p.Reconcile.Tool, "arguments": json.RawMessage(arguments)})
	if result == nil {
		return nil, fmt.Errorf("mcp: the tool %s didn't answer", p.Reconcile.Tool)
	}
	rules := judge.Rules{Answers: p.asking.finds}
	switch found := rules.Of(judge.Answer{Status: status, Header: in.Header, Body: result}).Verdict; {
	case found == judge.Rejected && !toolcall.Failed(result):
		content := []any{map[string]string{"type": "text", "text": "The call took effect. Its own answer was lost; this is the answer of the tool " + p.Reconcile.Tool + ":"}}
		for item := range jsonscan.Items(jsonscan.Member(result, "content")) {
			content = append(content, json.RawMessage(item))
		}
		text, _ := json.Marshal(map[string]any{"content": content}) // strict JSON
		return &finding.Finding{Outcome: semel.DispositionCompleted.String(), Status: http.StatusOK, Body: text}, nil
	case found == judge.Aborted && settle.Waited(held, p.Reconcile.AbsentAfter):
		return &finding.Finding{Outcome: semel.DispositionAborted.String(), Message: "the tool " + p.Reconcile.Tool + " says that it has had no effect"}, nil
	}
	return &finding.Finding{Outcome: finding.Unknown}, nil
}
