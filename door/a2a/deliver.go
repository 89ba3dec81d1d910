package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/streams"
	"github.com/semelhq/semel/store"
)

// Name is the mark of records that came through this door; see [semel.Call].Door.
const Name = "a2a"

// TaskEffect is the ledger's name for sending a message to an agent. Its result is the id of
// the task that the message has reached.
const TaskEffect = "semel.a2a.task"

// DefaultWait is how long a duplicate waits, by default, for a message in progress.
const DefaultWait = 30 * time.Second

// look is how long a duplicate waits before it asks the agent again. It bounds how much duplicates
// load the agent.
const look = 50 * time.Millisecond

// guard delivers messages to the engine, for both forms of this door.
type guard struct {
	engine    *semel.Engine
	runner    *door.Runner
	operation semel.Operation // with its defaults
	timeout   time.Duration
	wait      time.Duration
	names     *extract.Names
}

// newGuard registers the operation, unless it only names one that the engine has.
func newGuard(engine *semel.Engine, runner *door.Runner, op semel.Operation, attributes map[string]string, timeout, wait time.Duration) (*guard, error) {
	names, err := extract.NewNames(Name, attributes)
	switch {
	case engine == nil:
		return nil, errors.New("a2a: an engine is missing")
	case err != nil:
		return nil, err
	case timeout < 0 || wait < 0:
		return nil, errors.New("a2a: Timeout and Wait may not be negative")
	}
	if op, err = door.Declare(engine, op); err != nil {
		return nil, err
	}
	if op.Class == semel.ReadOnly {
		return nil, errors.New("a2a: messages start work, so their operation can't be of class I0")
	}
	return &guard{engine, runner, op, timeout, wait, names}, nil
}

// got is the result of delivering a message.
type got struct {
	semel.Answer
	// err says why there is no outcome. If the decision is Execute, the handler ran, and
	// without an error its answer may be sent.
	err error
	// outcome is the recorded outcome; nil if there is none.
	outcome *outcome
	// task is the task that the message has reached, if the record doesn't show its end: ask
	// the agent first, and use outcome or err if it doesn't say.
	task string
}

// deliver delivers a message, and has c send it if this delivery executes.
func (g *guard) deliver(ctx context.Context, call semel.Call, c *conversation) got {
	ans, err := g.runner.Do(ctx, call, door.Work{Handler: c})
	followed := false
	for again := true; again && err == nil && (ans.Decision == semel.InFlight || ans.Decision == semel.Replay); {
		if followed, again = c.exchange.rejoin(ctx, &call, &ans); again {
			ans, err = g.runner.Do(ctx, call, door.Work{Handler: c})
		}
	}
	if err == nil && ans.Decision == semel.InFlight && ans.Record.State == semel.Processing {
		var task string
		if task, err = g.join(ctx, ans.Record, c.until); task == "" && err == nil {
			ans, err = g.runner.Do(ctx, call, door.Work{Handler: c})
		}
		if task != "" {
			return got{Answer: ans, err: ans.Err(), task: task}
		}
	}
	result := got{Answer: ans, err: err}
	switch {
	case err != nil, ans.Attempt != nil:
	case ans.Decision == semel.Replay:
		result.recall()
		if followed && result.outcome != nil && result.outcome.Last != "" {
			result.task, result.err = "", nil // the sender lacks the end alone, which is there
		}
	default:
		result.err = ans.Err()
		if ans.Decision == semel.InFlight || ans.Decision == semel.Held {
			result.task = taskOf(ans.Record)
		}
	}
	return result
}

// recall reads the recorded outcome. If it has no answer of an agent, that is an error:
// somebody settled the call, or the answer was too large.
func (r *got) recall() {
	o, ok := recorded(r.Record.Result)
	if ok {
		r.outcome = &o
		if !o.Final && len(o.Error) == 0 {
			r.task = o.Task
		}
	} else if _, r.err = door.Outcome(&r.Answer, nil); r.err != nil {
		return
	}
	if len(o.Answer) == 0 && len(o.Error) == 0 {
		r.err = &semel.Error{Code: semel.CodeResultNotKept}
	}
}

// join waits until a message in progress has a task, or its attempt has ended. It returns no
// task if the engine must decide again.
func (g *guard) join(ctx context.Context, rec *semel.Record, end time.Time) (task string, err error) {
	leave := g.engine.Internal().Seat(rec.ID.Tenant)
	if leave == nil {
		return "", nil // too many are waiting
	}
	defer leave()
	until, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	rec, err = streams.Until(until, g.engine.Internal().Store(), rec, func(rec *store.Record) bool { return taskOf(rec) != "" })
	switch {
	case !streams.Ended(err) && until.Err() == nil:
		return "", err
	case ctx.Err() != nil || rec.State != semel.Processing || rec.Held:
		return "", ctx.Err()
	}
	return taskOf(rec), nil
}

// taskOf returns the task that a message in progress, or held, has reached; empty if it isn't known.
func taskOf(rec *semel.Record) (id string) {
	for i := range rec.Effects { // another caller's record shows none of them
		id += taskID(&rec.Effects[i])
	}
	return id
}

// taskID returns the task of an effect of this door; empty if it isn't known.
func taskID(ef *store.EffectRecord) (id string) {
	if ef.Name == TaskEffect && ef.State == store.EffectConfirmed {
		_ = json.Unmarshal(ef.Result.Data, &id) // otherwise it isn't known
	}
	return id
}
