package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// send sends writes of one shard in one run of scriptWrite, which nothing else comes
// between, and gives each its answer.
func (s *Store) send(batch []*write) {
	c := s.link.client()
	token, answers, err := s.evalWrites(c, batch)
	settle(batch, token, answers, err)
	for _, w := range batch {
		w.client = c
		switch {
		case errors.Is(w.err, errMixedUp):
			s.link.replace(c)
		case isReadOnly(w.err) && !s.link.cluster:
			// The server has become a replica: whoever resolves the address anew may
			// find the master.
			s.link.replace(c)
		}
	}
}

// token names a send: no other one ever has the same, also of the same writes. So an
// answer that belongs to an earlier send, or to another caller, is known by its token.
func (s *Store) token() string {
	return s.name + strconv.FormatUint(s.sends.Add(1), 36)
}

// settle gives each write of a run what the server answered about it. A write is made only
// where the answer accounts for every single one; where it does not, it is another's, or
// not whole, and says nothing about any. The errors of a run that was refused, or not
// answered, are those of all its writes.
func settle(batch []*write, token string, answers []any, err error) {
	if err == nil {
		err = settleEach(batch, token, answers)
	}
	if err == nil {
		return
	}
	if neverRan(err) && !errors.Is(err, semel.ErrNotApplied) {
		err = notApplied(err)
	}
	for _, w := range batch {
		w.made, w.there, w.err = false, "", err
	}
}

// settleEach takes the answers of scriptWrite.
func settleEach(batch []*write, token string, answers []any) error {
	if len(answers) < 2 || len(answers)%2 != 0 || answers[0] != token {
		return errMixedUp
	}
	made, others := answers[1], answers[2:]
	if made != int64(len(batch)-len(others)/2) {
		return errMixedUp
	}
	instead := make([]any, len(batch)+1)
	for i := 0; i < len(others); i += 2 {
		n, ok := others[i].(int64)
		if !ok || n < 1 || n > int64(len(batch)) || instead[n] != nil {
			return errMixedUp
		}
		switch why := others[i+1].(type) {
		case string, error:
			instead[n] = why
		case nil: // what an update follows is gone
			if batch[n-1].claims() {
				return errMixedUp
			}
			instead[n] = ""
		default:
			return errMixedUp
		}
	}
	for i, w := range batch {
		switch why := instead[i+1].(type) {
		case nil:
			w.made = true
		case string:
			w.there = why
		case error:
			w.err = notApplied(why)
			if why.Error() == tooLate {
				w.err = semel.ErrTooLate
			}
		}
	}
	return nil
}

// errMixedUp means that an answer belongs to something else, or is none. The connection
// it came by gives answers to the wrong calls; what was on its way there is unknown.
var errMixedUp = errors.New("the answer belongs to another call; the connections were closed")

func notApplied(err error) error { return fmt.Errorf("%w: %w", semel.ErrNotApplied, err) }

// refusals are the first words of what a server answers instead of running a command.
var refusals = map[string]bool{
	"ASK": true, "BUSY": true, "CLUSTERDOWN": true, "CROSSSLOT": true, "EXECABORT": true, "LOADING": true, "MASTERDOWN": true,
	"MISCONF": true, "MOVED": true, "NOAUTH": true, "NOPERM": true, "NOREPLICAS": true, "NOSCRIPT": true, "OOM": true,
	"READONLY": true, "TRYAGAIN": true, "WRONGPASS": true,
}

// neverRan reports whether an error proves that a run of a script has changed nothing and
// never will: there was no connection to send it by, or the server refused it as a whole.
// Such words may also come from within a script, which then has their place at the end and
// may have changed something before.
//
// An answer like this has no token, so it is believed as it comes. Should it be another
// call's, a claim that stands is taken for none: that blocks its key until its lease ends,
// and lets nothing run twice.
func neverRan(err error) bool {
	if _, ok := errors.AsType[*dialError](err); ok {
		return true
	}
	e, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return false
	}
	text := e.Error()
	word, _, _ := strings.Cut(text, " ")
	return refusals[word] && !strings.Contains(text, " script: ")
}

func isReadOnly(err error) bool {
	e, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && strings.HasPrefix(e.Error(), "READONLY ")
}
