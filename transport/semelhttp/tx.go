package semelhttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/transport/judge"
)

// Transactor runs the handlers of a route inside transactions of your database, so that
// the claim of a call, what its handler writes and the answer commit together; see
// [Route].Tx. A store offers one: pgstore.Transactions is for PostgreSQL by pgx. Its
// methods are called concurrently.
type Transactor interface {
	// Check says why calls of the engine can't be a part of these transactions, or
	// returns nil. It is called once for each route.
	Check(engine *semel.Engine) error
	// DoTx is [semel.Engine.DoTx], with a context for fn that carries the transaction. If
	// a transaction is rolled back because of others, it runs fn again in another one.
	DoTx(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error)
}

// CodeAnswerTooLarge: the handler's answer can't be recorded with its rows, so those were
// rolled back.
const CodeAnswerTooLarge = door.CodeAnswerTooLarge

// errWhole is why nothing of an answer leaves before its transaction has committed.
var errWhole = errors.New("semelhttp: the answer is larger than Operation.MaxResult or takes the connection over, and a route with Tx gives an answer only once it is recorded whole")

// txEnd is how a run of a handler has ended its transaction.
type txEnd uint8

const (
	txRecords  txEnd = iota // the answer is recorded, with or without the rows
	txForgets               // everything is rolled back, and the caller gets the answer
	txConclude              // everything is rolled back, and the caller gets the handler's verdict
	txTooLarge
	txLate
)

// txRun is one guarded request under a route with transactions.
type txRun struct {
	h        *handler
	w        http.ResponseWriter
	r        *http.Request
	sc       *scratch
	began    func() bool // stops heeding the caller hanging up
	expire   context.CancelFunc
	deadline time.Time   // of all runs together; zero: none, or no run has begun
	timer    *time.Timer // ends the runs at the deadline; nil if that is zero
	c        *capture    // of the newest run
	end      txEnd       // how that run ended
}

// serveTx takes over from Begin if the whole call runs in one transaction.
//
// A crash before the commit leaves nothing, neither rows nor a record, and the next
// delivery runs. After the commit the rows and the answer are there. Nothing of the
// answer leaves before that.
func (h *handler) serveTx(w http.ResponseWriter, r *http.Request, call semel.Call, sc *scratch) {
	// A caller may hang up while they wait for another's outcome. Once their handler runs
	// that has no effect any more.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	t := &txRun{h: h, w: w, r: r, sc: sc, began: context.AfterFunc(r.Context(), cancel), expire: cancel}
	defer t.began()
	defer func() {
		if t.timer != nil {
			t.timer.Stop()
		}
	}()
	ans, err := h.route.Tx.DoTx(ctx, h.guard.engine, call, t.run)
	if t.c != nil {
		defer t.c.stop()
	}
	if ans.Decision == semel.Execute {
		t.answer(&ans, err)
		return
	}
	if t.c != nil {
		t.c.outer.restore(w.Header()) // somebody else's commit came first
	}
	if ans.Decision == "" {
		h.refuseError(w, r, err)
		return
	}
	h.answerDecision(w, r, &ans, call.Wait)
}

// run is one run of the handler in one transaction.
func (t *txRun) run(ctx context.Context) (semel.Result, error) {
	t.began()
	if ctx.Err() != nil {
		return semel.Result{}, semel.Aborted(ctx.Err())
	}
	if d := t.h.route.Timeout; d > 0 && t.deadline.IsZero() {
		// It bounds the recording too: what isn't ready to commit by then is late.
		t.deadline = time.Now().Add(d)
		t.timer = time.AfterFunc(d, t.expire)
	}
	if t.c != nil {
		// The headers of the run before belong to an answer that nobody gets.
		t.c.outer.restore(t.w.Header())
		t.c.stop()
	}
	c := &capture{w: t.w, h: t.h, method: t.r.Method, sc: t.sc, spool: t.sc.spool.again(), whole: true}
	t.c = c
	c.scope.outer, c.scope.deadline = ctx, t.deadline
	c.start()
	inner := t.r.WithContext(&c.scope)
	inner.Body = &c.spool
	defer func() {
		c.closed = true
		c.scope.close()
		_ = c.spool.Close()
		if inner.MultipartForm != nil {
			_ = inner.MultipartForm.RemoveAll()
		}
	}()
	t.h.next.ServeHTTP(c, inner)
	if c.status == 0 && c.scope.concluded() == nil {
		c.WriteHeader(http.StatusOK)
	}
	res, end, err := t.outcome(ctx)
	t.end = end
	return res, err
}

// outcome says what the answer means for the transaction; see [Route].Tx.
func (t *txRun) outcome(ctx context.Context) (semel.Result, txEnd, error) {
	c := t.c
	said := errors.New("the handler answered " + strconv.Itoa(c.status))
	late := ctx.Err() != nil || !t.deadline.IsZero() && !time.Now().Before(t.deadline)
	switch v := c.scope.concluded(); {
	case v != nil && v.kind == endAbort:
		return semel.Result{}, txConclude, semel.Aborted(errors.New(v.why))
	case v != nil:
		return semel.Result{}, txConclude, semel.Unknown(errors.New(v.why))
	case c.failed != nil:
		return semel.Result{}, txTooLarge, semel.Aborted(c.failed)
	case late && c.status >= 500:
		return semel.Result{}, txForgets, semel.Aborted(said)
	case late:
		return semel.Result{}, txLate, semel.Aborted(context.DeadlineExceeded)
	}
	switch v := c.found.Verdict; v {
	case judge.Completed:
		return c.result(), txRecords, nil
	case judge.Rejected:
		return c.result(), txRecords, semel.Rejected(strconv.Itoa(c.status), said)
	case judge.Failed:
		if t.h.keeps(v) {
			return c.result(), txRecords, semel.Failure(said)
		}
		return semel.Result{}, txRecords, semel.Failure(said)
	}
	// What is unknown elsewhere is rolled back here, so that nothing was done.
	return semel.Result{}, txForgets, semel.Aborted(said)
}

// answer sends the caller what the run came to.
func (t *txRun) answer(ans *semel.Answer, err error) {
	recorded := ans.Record != nil && ans.Record.State.Terminal()
	var p problem
	switch {
	case t.end == txRecords && recorded, t.end == txForgets:
		t.c.send()
		return
	case t.end == txConclude:
		p = t.c.scope.concluded().answer
	case t.end == txTooLarge:
		p = problemOf(CodeAnswerTooLarge)
	case t.end == txLate:
		p = unavailable()
		p.detail = "The request took too long. Everything was rolled back and nothing was done; send the same request again."
	default:
		t.h.guard.reportError(t.r.Context(), err)
		p = unavailable()
		if errors.Is(err, semel.ErrUnknown) {
			p = unrecorded()
			p.detail = "The database did not say whether the work was committed. Send the same request again to get the outcome."
		} else {
			p.detail = "The work could not be committed. Everything was rolled back and nothing was done; send the same request again."
		}
	}
	t.c.outer.restore(t.w.Header())
	t.h.refuse(t.w, p)
}
