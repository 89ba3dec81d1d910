package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// notifier gathers changes for the notices to other processes.
//
// Notices do not travel in the transactions that they are about: PostgreSQL commits
// transactions with notices one after the other, each of them to the disk. They
// follow in a transaction of their own, many in one, that waits for no disk. One
// that is lost with a crash is made up for by those who wait, who also poll.
//
// A process that is alone tells nobody: even so, notices would cost a caller that is
// alone a tenth of its speed. So processes greet each other. Who begins to listen,
// and everybody from time to time, asks who is there. Who hears somebody else for the
// first time says that it tells of its changes from now on, and the others have those
// who wait look once, for what it did not tell of before.
type notifier struct {
	name  string // among those that listen
	since time.Time
	// heeded is until when, after since, somebody else is taken to listen.
	heeded atomic.Int64

	mu      sync.Mutex
	on      bool
	pending []string
	all     bool // too many to name
	greet   []string
	wake    chan struct{}
}

const (
	// noticePause is the time from one transaction with notices to the next.
	noticePause = 10 * time.Millisecond
	// noticeNames is how many records a notice names; it may have 8,000 bytes.
	noticeNames = 600
	// maxNames is how many wait to be named at most. Beyond that everybody is told.
	maxNames = 16 * noticeNames
	// everything is a notice that stands for every record.
	everything = "*"
	nameLen    = 11 // of watchKeyLen bytes in base64
)

// Greetings are followed by the name of who sends them. No name of a record begins
// like one.
const (
	whoIsThere = '?'
	here       = '!'
	fromNow    = '+' // is there, and told nobody of its changes before
)

const (
	// askEvery is how often a process asks who is there, and heedFor for how long it
	// tells those whom it has heard.
	askEvery = 30 * time.Second
	heedFor  = 100 * time.Second
	// answerWithin is for how long it tells everybody after it has asked first.
	answerWithin = time.Second
)

func (n *notifier) start() {
	n.on, n.wake = true, make(chan struct{}, 1)
	n.since = time.Now()
	n.name = rand.Text()
	n.deaf()
}

// alone reports whether nobody else listens.
func (n *notifier) alone() bool { return int64(time.Since(n.since)) > n.heeded.Load() }

// deaf means that nobody who asks is heard, so that everybody is told.
func (n *notifier) deaf() { n.heeded.Store(math.MaxInt64) }

// listens is called when greetings are heard from now on.
func (n *notifier) listens() {
	n.heeded.Store(int64(time.Since(n.since) + answerWithin))
	n.say(whoIsThere)
}

func (n *notifier) say(greeting byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.greet = append(n.greet, string(greeting)+n.name)
	tell(n.wake)
}

// greeted takes note of a notice if it is a greeting, and reports whether its sender
// may have made changes that it told nobody.
func (n *notifier) greeted(payload string) (greeting, untold bool) {
	if payload == "" || strings.IndexByte(string([]byte{whoIsThere, here, fromNow}), payload[0]) < 0 {
		return false, false
	}
	if payload[1:] == n.name {
		return true, false
	}
	alone := n.alone()
	n.heeded.Store(int64(time.Since(n.since) + heedFor))
	switch {
	case alone:
		n.say(fromNow)
	case payload[0] == whoIsThere:
		n.say(here)
	}
	return true, payload[0] == fromNow
}

func (n *notifier) add(id *digest) {
	if !n.on || n.alone() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) < maxNames {
		n.pending = append(n.pending, base64.RawURLEncoding.EncodeToString(id[:watchKeyLen]))
	} else {
		n.all = true
	}
	tell(n.wake)
}

// take returns the notices to send.
func (n *notifier) take() (payloads []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	payloads, n.greet = n.greet, nil
	if n.all {
		n.pending, n.all = n.pending[:0], false
		return append(payloads, everything)
	}
	for names := n.pending; len(names) > 0; {
		k := min(len(names), noticeNames)
		payloads = append(payloads, strings.Join(names[:k], ""))
		names = names[k:]
	}
	n.pending = n.pending[:0]
	return payloads
}

// tellOthers sends notices until ctx is done.
func (s *Store) tellOthers(ctx context.Context) {
	pause := time.NewTimer(0)
	<-pause.C
	defer pause.Stop()
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask.C:
			s.notify.say(whoIsThere)
		case <-s.notify.wake:
		}
		if payloads := s.notify.take(); len(payloads) > 0 {
			c := textColumn(len(payloads), noticeNames*nameLen)
			for _, p := range payloads {
				c.text(p)
			}
			err := s.query(ctx, newStatement(s.sql.notify, textValue(channel(s.opts.Schema)), c).prepare(), func([][]byte) error { return nil })
			if err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("other processes could not be told of changes", "error", err)
			}
		}
		pause.Reset(noticePause)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}
