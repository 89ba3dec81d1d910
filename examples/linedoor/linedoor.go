// Package linedoor is a door for a protocol of one line a call, made for the page Writing a
// door. A request is a token, a key and a payload; an answer is OK and the result, or ERR,
// the code and what it means:
//
//	> s3cret order-17 4200 EUR
//	< OK paid 4200 EUR
//	> s3cret order-17 9900 EUR
//	< ERR conflict This key was used before with another payload. …
package linedoor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// snippet: Type

// Door answers lines. Make one with [New]; its methods may be called concurrently.
type Door struct {
	engine *semel.Engine
	opts   Options
	runner *door.Runner
}

// Options configure a [Door]. All of them are required.
type Options struct {
	// Operation has the policy of the calls.
	Operation semel.Operation
	// Callers are the principals, by their tokens.
	Callers map[string]string
	// Work does the work of a call.
	Work func(ctx context.Context, x semel.Execution, payload string) (string, error)
}

// New makes a door on an engine.
func New(engine *semel.Engine, opts Options) (*Door, error) {
	if err := engine.Register(opts.Operation); err != nil {
		return nil, err
	}
	return &Door{engine: engine, opts: opts, runner: door.NewRunner(engine)}, nil
}

// Close waits for outcomes that could not be recorded at once. Call it after the last
// Serve has returned.
func (d *Door) Close(ctx context.Context) error { return d.runner.Close(ctx) }

// end snippet

// maxLine bounds what a stranger can make the door keep, in bytes.
const maxLine = 16 << 10

// Serve answers the lines of a connection, one after another, until it ends.
func (d *Door) Serve(ctx context.Context, conn io.ReadWriter) error {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if _, err := fmt.Fprintln(conn, d.Answer(ctx, lines.Text())); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		_, _ = fmt.Fprintln(conn, refusal(door.CodeTooLarge))
	}
	return lines.Err()
}

// snippet: Answer

// Answer answers one line, and tells whoever observes the engine.
func (d *Door) Answer(ctx context.Context, line string) string {
	ctx = d.engine.Internal().Arrived(ctx, "line", nil)
	answer, e := d.answer(ctx, line)
	d.engine.Internal().Answered(ctx, e)
	return answer
}

func (d *Door) answer(ctx context.Context, line string) (string, semel.Event) {
	call, payload, code := d.recognise(line)
	if code != "" {
		return refusal(code), semel.Event{Code: code}
	}
	c := conversation{door: d, payload: payload}
	ans, err := d.runner.Do(ctx, call, door.Work{Handler: &c, Timeout: time.Minute})
	e := door.EventOf(&ans)
	recorded, err := door.Outcome(&ans, err)
	switch {
	case err != nil:
		e.Code = door.CodeOf(err)
		return refusal(e.Code), e
	case ans.Decision == semel.Execute:
		return c.answer, e
	}
	answer := string(recorded.Data)
	if !strings.HasPrefix(answer, "OK ") && !strings.HasPrefix(answer, "ERR ") {
		answer = "OK " + answer // somebody settled the call, and knows nothing of lines
	}
	return answer, e
}

// refusal is what a code means, in the form of this protocol.
func refusal(code semel.Code) string {
	m, _ := door.Lookup(code)
	return fmt.Sprintf("ERR %s %s", m.Code, m.Detail())
}

// end snippet

// snippet: Recognise

// recognise makes the call that a line delivers, or says why it is none.
func (d *Door) recognise(line string) (call semel.Call, payload string, code semel.Code) {
	token, rest, _ := strings.Cut(line, " ")
	key, payload, complete := strings.Cut(rest, " ")
	who, known := d.opts.Callers[token]
	switch {
	case !known:
		return call, "", door.CodeUnauthorized
	case key == "" || !complete:
		return call, "", semel.CodeInvalidCall
	}
	return semel.Call{
		Principal: who, Operation: d.opts.Operation.Name, Key: key, Door: "line",
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)),
	}, payload, ""
}

// end snippet

// snippet: Run

// conversation is one line whose call executes.
type conversation struct {
	door    *Door
	payload string
	answer  string
}

// Run does the work, and says how the attempt ends by what came of it.
func (c *conversation) Run(x door.Run) semel.Ending {
	ctx, cancel := x.Context()
	defer cancel()
	result, err := c.door.opts.Work(ctx, x.Attempt, c.payload)
	end := x.Ending(err)
	switch end.Disposition {
	case semel.DispositionCompleted:
		c.answer = "OK " + result
	case semel.DispositionRejected:
		c.answer = "ERR " + string(semel.CodeRejected) + " " + end.Failure.Message
	case semel.DispositionFailed:
		c.answer = refusal(semel.CodeFailed)
	case semel.DispositionAborted:
		c.answer = refusal(semel.CodeAborted)
	default:
		c.answer = refusal(semel.CodeHeld) // nobody knows, so nobody is told that it failed
	}
	end.Result = semel.Result{Data: []byte(c.answer)}
	return end
}

// end snippet
