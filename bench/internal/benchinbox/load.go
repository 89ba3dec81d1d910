package benchinbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/semelhq/semel/bench/internal/histogram"
	"github.com/semelhq/semel/bench/internal/loopback"
)

// sender delivers one activity after the other on one connection.
type sender struct {
	number int
	conn   *loopback.Conn
	rng    *rand.Rand
	serial int // of its next new activity
	size   int // of activities
	body   []byte
	out    []byte
}

// verdict is what an inbox said to a delivery.
type verdict int

const (
	refused   verdict = iota // another status than 202
	taken                    // it is new
	duplicate                // it was there
	conflict                 // another one has its id
)

// The beginnings of messages of 202.
var (
	sayTaken     = []byte(`"message":"queued`)
	sayDuplicate = []byte(`"message":"already`)
)

// deliver sends an activity and waits for the answer.
func (s *sender) deliver(id []byte) (verdict, int, time.Duration, error) {
	s.body = appendActivity(s.body[:0], id, s.size)
	s.out = append(s.out[:0], "POST "+path+" HTTP/1.1\r\nHost: here.example\r\nContent-Type: "+mediaType+"\r\nContent-Length: "...)
	s.out = strconv.AppendInt(s.out, int64(len(s.body)), 10)
	s.out = append(s.out, "\r\n\r\n"...)
	s.out = append(s.out, s.body...)
	start := time.Now()
	status, answer, err := s.conn.Do(s.out)
	took := time.Since(start)
	switch {
	case err != nil:
		return refused, 0, took, errors.Join(err, s.conn.Reconnect())
	case status != http.StatusAccepted:
		return refused, status, took, nil
	case bytes.Contains(answer, sayTaken):
		return taken, status, took, nil
	case bytes.Contains(answer, sayDuplicate):
		return duplicate, status, took, nil
	}
	return conflict, status, took, nil
}

const idStart = "https://there.example/activities/"

// appendKnown appends the id of the i-th activity that is in the store.
func appendKnown(b []byte, i int) []byte {
	return strconv.AppendInt(append(b, idStart+"known-"...), int64(i), 10)
}

// appendFresh appends an id that no other delivery of this run has had.
func (s *sender) appendFresh(b []byte) []byte {
	s.serial++
	return fmt.Appendf(b, idStart+"fresh-%d-%d", s.number, s.serial)
}

// appendActivity appends an activity of about size bytes: the same for the same id. Its
// content is made of hexadecimal digits, which a store can compress about as well as text.
func appendActivity(b, id []byte, size int) []byte {
	start := len(b)
	b = append(b, `{"@context":"https://www.w3.org/ns/activitystreams","type":"Offer","id":"`...)
	b = append(b, id...)
	b = append(b, `","actor":"https://there.example/users/bob","to":"https://here.example/actors/alice","object":{"type":"VulnerabilityReport","id":"`...)
	b = append(b, id...)
	b = append(b, `/report","attributedTo":"https://there.example/users/bob","content":"`...)
	h := fnv.New64a()
	_, _ = h.Write(id)
	content := rand.NewPCG(h.Sum64(), 1)
	var word [8]byte
	for len(b)-start < size-3 {
		v := content.Uint64()
		for i := range word {
			word[i] = byte(v >> (8 * i))
		}
		b = hex.AppendEncode(b, word[:])
	}
	return append(b, `"}}`...)
}

// tally adds up the answers of one kind of delivery.
type tally struct {
	latency  histogram.Histogram
	statuses map[int]int // without 202
	failed   int         // no answer, or a wrong one
	first    error
}

func (t *tally) add(status int, took time.Duration, err error) {
	if err != nil {
		t.failed++
		if t.first == nil {
			t.first = err
		}
		return
	}
	t.latency.Add(took)
	if status != http.StatusAccepted {
		if t.statuses == nil {
			t.statuses = map[int]int{}
		}
		t.statuses[status]++
	}
}

func (t *tally) merge(o *tally) {
	t.latency.Merge(&o.latency)
	for status, n := range o.statuses {
		if t.statuses == nil {
			t.statuses = map[int]int{}
		}
		t.statuses[status] += n
	}
	t.failed += o.failed
	if t.first == nil {
		t.first = o.first
	}
}

// repeat makes every sender deliver for a while what id appends, which has to be of one
// kind, and returns how long that took.
func repeat(ctx context.Context, senders []*sender, d time.Duration, want verdict, id func(s *sender, b []byte) []byte) (*tally, time.Duration) {
	all := new(tally)
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for _, s := range senders {
		wg.Go(func() {
			var own tally
			var buf []byte
			// The first delivery may take longer than the time on a busy machine.
			for n := 0; ctx.Err() == nil && (n == 0 || time.Since(start) < d); n++ {
				buf = id(s, buf[:0])
				got, status, took, err := s.deliver(buf)
				if err == nil && status == http.StatusAccepted && got != want {
					err = fmt.Errorf("the inbox took %s for something else", buf)
				}
				own.add(status, took, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all.merge(&own)
		})
	}
	wg.Wait()
	return all, time.Since(start)
}
