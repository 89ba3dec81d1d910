package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/internal/terms"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

const (
	// workers is the most runs of a queue in flight; see BenchmarkWorkers.
	workers = 2
	// maxBatch and maxBatchBytes bound a run: the server does nothing else while it executes
	// one, and its writes are unknown if the answer is lost. BenchmarkMaxBatch shows what a
	// smaller one would cost.
	maxBatch      = 128
	maxBatchBytes = 256 << 10
)

func (s *Store) makeQueues() {
	s.room = gather.NewRoom()
	n := 1
	if s.link.cluster {
		n = shardCount
	}
	for range n {
		s.queues = append(s.queues, &gather.Queue[*write]{
			Send: func(batch []*write) { s.send(context.Background(), batch) },
			Lead: func(ctx context.Context, w *write) { s.send(ctx, []*write{w}) },
			Work: &s.work, Room: s.room, Workers: workers, MaxBatch: maxBatch, MaxBytes: maxBatchBytes,
			Key: func(w *write) [digestLen]byte { return w.id }, Answers: answersWrite,
			Failed: func(w *write) bool { return w.err != nil && w.there == "" && !errors.Is(w.err, store.ErrTooLate) },
		})
	}
}

// write is a write in flight.
type write struct {
	gather.Item

	id                                    [digestLen]byte
	record                                *semel.Record
	shard                                 *shard
	value, key, expect, created, deadline string  // see scriptWrite
	gone, added                           string  // the terms, likewise
	memory                                *[]byte // what those texts are in, but for the terms

	// The result. After an error it is unknown whether the write was applied, unless the error
	// is an ErrNotApplied or ErrTooLate. Without an error, current is the record that is stored
	// now, by this write or another; nil if there is none.
	err     error
	made    bool
	there   string // current as the server has it, if it isn't the record
	current *semel.Record
}

// newWrite prepares a write of a record.
func (s *Store) newWrite(from *store.Write) (*write, error) {
	rec := from.Record
	w := &write{id: rec.ID.Digest(), record: rec}
	w.shard = s.keys.shard(&w.id)
	w.memory = memories.Get().(*[]byte)
	b, err := codec.Append(appendHead(*w.memory, rec.NextAt), rec)
	if err != nil {
		return nil, err
	}
	value := len(b)
	b = append(append(b, w.shard.records...), w.id[:]...)
	key := len(b)
	if from.Expect.IsZero() {
		b = append(b, '-')
		b = appendDigits(b, micros(rec.CreatedAt))
	}
	created := len(b)
	if from.Deadline != 0 {
		// The server doesn't know about Advance.
		b = appendDeadline(b, s.clock.Servers(from.Deadline))
	}
	deadline := len(b)
	if !from.Expect.IsZero() {
		b = append(b, from.Expect[:]...)
	}
	if len(from.Was)+len(rec.Attributes) > 0 {
		gone, added := terms.Changed(from.Was, rec.Attributes)
		w.gone, w.added = joined(gone), joined(added)
	}
	*w.memory = b[:0]
	all := rueidis.BinaryString(b) // nobody changes these bytes before done
	w.value, w.key, w.created, w.deadline, w.expect = all[:value], all[value:key], all[key:created], all[created:deadline], all[deadline:]
	return w, nil
}

// memories has the memory of writes that are done, for others: it was most of what a write
// allocated.
var memories = sync.Pool{New: func() any { return new([]byte) }}

// done gives the memory of the write back. Its texts must not be read any more: the server has
// answered, or has never been asked. After an error the client may still be about to send them.
func (w *write) done() {
	if cap(*w.memory) <= maxBatchBytes { // otherwise a few large results would make all of it large
		memories.Put(w.memory)
	}
	w.value, w.key, w.created, w.deadline, w.expect, w.memory = "", "", "", "", "", nil
}

// joined returns terms in the form that scripts get them.
func joined(list []terms.Term) string {
	var b []byte
	for i := range list {
		b = append(b, list[i][:]...)
	}
	return string(b)
}

// claims reports whether the write is for a record that must not exist yet.
func (w *write) claims() bool { return w.expect == "" }

// Size is how many bytes [gather.Queue] counts it as.
func (w *write) Size() int { return len(w.value) + len(w.gone) + len(w.added) + 256 }

// appendDeadline appends an instant in microseconds, rounded up: TIME has whole microseconds,
// and the first one that isn't before the deadline is too late.
func appendDeadline(b []byte, at store.Instant) []byte {
	us := int64(at) / 1000
	if int64(at)%1000 > 0 {
		us++
	}
	return strconv.AppendInt(b, us, 10)
}

// answersWrite gives a waiting write the result of a sent one of the same record, if the same
// thing stands in its way.
func answersWrite(sent, waiting *write) bool {
	switch cur := sent.current; {
	case sent.err != nil, cur == nil && waiting.claims(), cur != nil && string(cur.Revision[:]) == waiting.expect:
		return false
	}
	waiting.current = sent.current
	return true
}

// send sends writes as one run of scriptWrite, which is atomic, and gives each its result. It
// returns when the server has answered or the connection is closed, at the deadline of ctx at
// the latest. A write that was sent is never cancelled.
func (s *Store) send(ctx context.Context, batch []*write) {
	c := s.link.client()
	token := s.token()
	res := c.writes.Do(ctx, writeCommand(c.writes.B(), batch, token, false))
	if answerWord(res.Error()) == noScript {
		// It didn't run. After this, the server knows the script.
		token = s.token()
		res = c.writes.Do(ctx, writeCommand(c.writes.B(), batch, token, true))
	}
	answer, err := res.ToAny()
	answers, _ := answer.([]any)
	settle(batch, token, answers, err)
	for _, w := range batch {
		switch {
		case w.made:
			w.current = w.record
		case w.there != "":
			w.current, w.err = s.decode(c, digestOf(w.key), w.there)
		}
		s.link.replaceAfter(w.err, c)
	}
}

// changesTerms reports whether the write changes the index of attributes.
func (w *write) changesTerms() bool { return w.gone != "" || w.added != "" }

// token returns a name for a send. No two sends have the same one, not even of the same writes,
// so an answer to another send has another token.
func (s *Store) token() string {
	var b [32]byte
	return string(strconv.AppendUint(append(b[:0], s.name...), s.sends.Add(1), 36))
}

// settle gives each write of a run its result. It believes an answer only if that accounts for
// every write; otherwise the answer belongs to another run, or is incomplete, and proves nothing
// about any of them. If the run was refused or not answered, all its writes get that error.
func settle(batch []*write, token string, answers []any, err error) {
	if err == nil {
		err = settleEach(batch, token, answers)
	}
	if err == nil {
		return
	}
	if neverRan(err) && !errors.Is(err, store.ErrNotApplied) {
		err = notApplied(err)
	}
	for _, w := range batch {
		w.made, w.there, w.err = false, "", err
	}
}

// settleEach reads the answer of scriptWrite. It returns an error if the answer doesn't fit.
func settleEach(batch []*write, token string, answers []any) error {
	if len(answers) < 2 || len(answers)%2 != 0 || answers[0] != token {
		return errCrossedReply
	}
	made, others := answers[1], answers[2:]
	if made != int64(len(batch)-len(others)/2) {
		return errCrossedReply
	}
	for _, w := range batch {
		w.made = true
	}
	for ; len(others) > 0; others = others[2:] {
		n, ok := others[0].(int64)
		if !ok || n < 1 || n > int64(len(batch)) || !batch[n-1].made {
			return errCrossedReply
		}
		w := batch[n-1]
		w.made = false
		switch why := others[1].(type) {
		case string:
			w.there = why
		case error:
			w.err = notApplied(why)
			if why.Error() == tooLate {
				w.err = store.ErrTooLate
			}
		case nil: // the record to update is gone
			if w.claims() {
				return errCrossedReply
			}
		default:
			return errCrossedReply
		}
	}
	return nil
}

// errCrossedReply means that an answer belongs to another call. Its connection gives answers
// to the wrong calls, so the results of everything in flight on it are unknown.
var errCrossedReply = errors.New("the answer belongs to another call; the connections were closed")

func notApplied(err error) error { return fmt.Errorf("%w: %w", store.ErrNotApplied, err) }

// refusals has the first words of errors that mean that the server didn't run a command at all.
var refusals = map[string]bool{
	"ASK": true, "BUSY": true, "CLUSTERDOWN": true, "CROSSSLOT": true, "LOADING": true, "MASTERDOWN": true,
	"MISCONF": true, "MOVED": true, "NOAUTH": true, "NOPERM": true, "NOREPLICAS": true, "NOSCRIPT": true, "OOM": true,
	"READONLY": true, "TRYAGAIN": true, "WRONGPASS": true,
}

// neverRan reports whether an error proves that a run of a script has changed nothing and never
// will: there was no connection to send it over, or the server refused it as a whole. A command
// within a script can fail with the same words, after others have changed something; such an
// error ends with its place in the script.
//
// A refusal has no token, so nobody can check it. If it answers another call, an applied claim
// looks refused: its key is blocked until the lease ends, but nothing runs twice.
func neverRan(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true // the run needed a new connection, and there was none
	}
	return refusals[answerWord(err)] && !strings.Contains(err.Error(), " script: ")
}

// answerWord returns the first word of an error that a server answered, or "" for any other
// error.
func answerWord(err error) string {
	e, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(e.Error(), " ")
	return word
}

func isReadOnly(err error) bool { return answerWord(err) == "READONLY" }
