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
	return &Door{opts: opts, runner: door.NewRunner(engine)}, nil
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

// Answer answers one line.
func (d *Door) Answer(ctx context.Context, line string) string {
	c := conversation{door: d, line: line}
	reply := d.runner.Deliver(ctx, door.Delivery{Name: "line", Call: c.recognise, Work: door.Work{Handler: &c, Timeout: time.Minute}})
	switch {
	case reply.Err != nil:
		return refusal(door.CodeOf(reply.Err))
	case reply.Decision == semel.Execute:
		return c.answer
	}
	answer := string(reply.Result.Data)
	if !strings.HasPrefix(answer, "OK ") && !strings.HasPrefix(answer, "ERR ") {
		answer = "OK " + answer // somebody settled the call, and knows nothing of lines
	}
	return answer
}

// refusal is what a code means, in the form of this protocol.
func refusal(code semel.Code) string {
	m, _ := door.Lookup(code)
	return fmt.Sprintf("ERR %s %s", m.Code, m.Detail())
}

// end snippet

// snippet: Recognise

// conversation is one line and its answer.
type conversation struct {
	door                  *Door
	line, payload, answer string
}

// recognise makes the call that a line delivers, or says why it is none.
func (c *conversation) recognise(context.Context) (semel.Call, error) {
	token, rest, _ := strings.Cut(c.line, " ")
	key, payload, complete := strings.Cut(rest, " ")
	who, known := c.door.opts.Callers[token]
	switch {
	case !known:
		return semel.Call{}, &semel.Error{Code: door.CodeUnauthorized}
	case key == "" || !complete:
		return semel.Call{}, &semel.Error{Code: semel.CodeInvalidCall}
	}
	c.payload = payload
	return semel.Call{
		Principal: who, Operation: c.door.opts.Operation.Name, Key: key, Door: "line",
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)),
	}, nil
}

// end snippet

// snippet: Run

// Run does the work, and says how the attempt ends by what came of it.
func (c *conversation) Run(x door.Run) semel.Ending {
	ctx, cancel := x.Context()
	defer cancel()
	result, err := c.door.opts.Work(ctx, x.Attempt, c.payload)
	end := x.Ending(err)
	switch code := door.CodeOfEnding(end.Disposition); code {
	case "":
		c.answer = "OK " + result
	case semel.CodeRejected:
		c.answer = "ERR " + string(code) + " " + end.Failure.Message
	default:
		c.answer = refusal(code)
	}
	end.Result = semel.Result{Data: []byte(c.answer)}
	return end
}

// end snippet
