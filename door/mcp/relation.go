package mcp

import (
	"errors"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// relation is how a call that came stands to one that isn't known to be delivered.
type relation int

// The relations. Of several calls that may be repeated, it is the one with the highest.
const (
	over     relation = iota // the other was delivered, or is long past
	beside                   // they are two calls
	doubtful                 // that isn't known yet
	silent                   // it repeats the other, after whose answer nothing came
	repeated                 // it repeats the other, whose client is gone
)

// judge compares the call that came with another. What belongs to this process is in memory: a call
// that isn't there any more was delivered, or its window is over.
func (l *looking) judge(c *echoCall) relation {
	l.mu.Lock()
	s, ours := l.streams[c.Key]
	var own stream
	if ours {
		own = *s
	}
	l.mu.Unlock()
	switch {
	case l.call.Confirm != "" && c.Key != l.call.Key: // with its token it has its key
		return beside
	case l.call.Confirm != "":
		return repeated
	case !ours && strings.HasPrefix(c.By, l.process) && c.Lost == 0:
		return over
	case !ours:
		return l.judgeRecord(c)
	case !own.lost.IsZero():
		return repeated
	case !l.patient: // what its client does on that connection may be on the way
		return doubtful
	case !own.sent.IsZero() && l.came.After(own.sent) && own.delivery.Reached():
		return over // its client has one connection for this and another for that
	case !own.sent.IsZero() && l.came.After(own.sent):
		return silent
	}
	return beside
}

// judgeRecord compares the call with one of another process, by what the engine knows of that. A
// process that renews the lease is alive, and would have said that it lost the client.
func (l *looking) judgeRecord(c *echoCall) relation {
	other := l.call
	other.Key = c.Key
	rec, err := l.engine.Lookup(l.ctx, other.ID(l.share))
	now, clockErr := l.engine.Internal().Store().Now(l.ctx)
	switch {
	case clockErr != nil || err != nil && !errors.Is(err, semel.ErrNotFound):
		return doubtful
	case err != nil && c.Lost == 0 && !l.patient: // its claim may be on the way
		return doubtful
	case err != nil:
		return l.within(now, c.Lost)
	case rec.Confirmation != nil && rec.Confirmation.ConfirmedAt == 0: // until then, whatever the window is
		return repeated
	case rec.State == semel.Processing && (rec.Held || c.Lost != 0 || rec.LeaseUntil <= now):
		return repeated
	case rec.State == semel.Processing && rec.UpdatedAt > l.now:
		return beside
	case rec.State == semel.Processing:
		return doubtful // until its lease is renewed, or ends
	case c.Lost != 0:
		return l.within(now, max(c.Lost, rec.EndedAt))
	case rec.Settled != nil: // its process was gone
		return l.within(now, rec.EndedAt)
	case rec.EndedAt <= l.now:
		return min(l.within(now, rec.EndedAt), silent)
	case l.patient:
		return beside
	}
	return doubtful
}

// within is the relation to a call that was lost at a time; zero: nobody knows when.
func (l *looking) within(now, at store.Instant) relation {
	if at != 0 && now.Sub(at) >= l.window {
		return over
	}
	return repeated
}
