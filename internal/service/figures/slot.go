package figures

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/semelhq/semel/store"
)

// slot has the counts of one minute or hour, from at on. A finished slot no longer changes.
type slot struct {
	at      int64 // Unix seconds, by the store's clock
	counts  map[Series]int64
	added   map[int]int64 // deliveries by bucketOf the time that Semel added
	records []Record      // of note; only in hours
}

func newSlot(at int64) slot {
	return slot{at: at, counts: map[Series]int64{}, added: map[int]int64{}}
}

func (s *slot) empty() bool { return len(s.counts) == 0 && len(s.added) == 0 }

// plus is the sum of two slots, with the time of s, and the records of both.
func (s slot) plus(more slot) slot {
	sum := slot{at: s.at, counts: maps.Clone(s.counts), added: maps.Clone(s.added), records: s.records}
	for series, n := range more.counts {
		sum.counts[series] += n
	}
	for bucket, n := range more.added {
		sum.added[bucket] += n
	}
	if len(more.records) > 0 {
		sum.records = slices.Concat(s.records, more.records)
	}
	return sum
}

// Buckets of time: each begins where the one before ends and is 19 % longer, from a
// microsecond to a minute.
const (
	perDoubling = 4
	lastBucket  = 26 * perDoubling
)

func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	return min(int(math.Ceil(perDoubling*math.Log2(float64(d)/float64(time.Microsecond)))), lastBucket)
}

// of picks one tenant's counts, and reports whether some tenants have none for lack of room.
func (s *slot) of(tenant string) (one slot, left bool) {
	one = newSlot(s.at)
	for series, n := range s.counts {
		bucket, err := strconv.Atoi(series.What)
		switch {
		case series.What == Other:
			left = true
		case series.Tenant != tenant:
		case err == nil:
			one.added[bucket] += n
		default:
			one.counts[Series{series.Door, series.Operation, series.What, ""}] += n
		}
	}
	return one, left
}

// quantile is a time that a share of the deliveries didn't exceed, at most 19 % too long.
func quantile(added map[int]int64, share float64) time.Duration {
	var all, so int64
	for _, n := range added {
		all += n
	}
	for _, bucket := range slices.Sorted(maps.Keys(added)) {
		if so += added[bucket]; float64(so) >= share*float64(all) {
			return time.Duration(float64(time.Microsecond) * math.Exp2(float64(bucket)/perDoubling)) // the end of the bucket
		}
	}
	return 0
}

// The forms of slots in the store. Each cell has the names of its series once.
type (
	keptSlot struct {
		At      int64        `json:"t"`
		Counts  [][2]int64   `json:"c,omitempty"` // of a series: its index, and the count
		Added   [][2]int64   `json:"a,omitempty"`
		Records []keptRecord `json:"r,omitempty"`
	}
	keptRecord struct {
		ID     string   `json:"id"`
		Counts [6]int64 `json:"n"`
	}
	names struct {
		list  []Series
		index map[Series]int64
	}
)

func (n *names) of(s Series) int64 {
	i, ok := n.index[s]
	if !ok {
		if n.index == nil {
			n.index = map[Series]int64{}
		}
		i = int64(len(n.list))
		n.index[s], n.list = i, append(n.list, s)
	}
	return i
}

func (s *slot) kept(n *names) keptSlot {
	k := keptSlot{At: s.at}
	for series, count := range s.counts {
		k.Counts = append(k.Counts, [2]int64{n.of(series), count})
	}
	for bucket, count := range s.added {
		k.Added = append(k.Added, [2]int64{int64(bucket), count})
	}
	for i := range s.records {
		r := &s.records[i]
		k.Records = append(k.Records, keptRecord{r.ID.Encode(), [6]int64{r.Repeats, r.Simultaneous, r.Peak, r.Failed, int64(r.Attempt), r.Last}})
	}
	return k
}

var errDamaged = errors.New("figures: a cell isn't what a node writes")

func (k *keptSlot) slot(names []Series) (slot, error) {
	s := newSlot(k.At)
	for _, c := range k.Counts {
		if c[0] < 0 || c[0] >= int64(len(names)) {
			return s, errDamaged
		}
		s.counts[names[c[0]]] += c[1]
	}
	for _, a := range k.Added {
		if a[0] < 0 || a[0] > lastBucket {
			return s, errDamaged
		}
		s.added[int(a[0])] += a[1]
	}
	for _, r := range k.Records {
		id, err := store.DecodeID(r.ID)
		if err != nil {
			return s, err
		}
		n := r.Counts
		s.records = append(s.records, Record{ID: id, Repeats: n[0], Simultaneous: n[1], Peak: n[2], Failed: n[3], Attempt: int(n[4]), Last: n[5]})
	}
	return s, nil
}

// MarshalJSON keeps a series as a list of its words: three, unless it is one tenant's.
func (s Series) MarshalJSON() ([]byte, error) {
	words := []string{s.Door, s.Operation, s.What, s.Tenant}
	if s.Tenant == "" {
		words = words[:3]
	}
	return json.Marshal(words)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (s *Series) UnmarshalJSON(text []byte) error {
	var words [4]string
	err := json.Unmarshal(text, &words)
	s.Door, s.Operation, s.What, s.Tenant = words[0], words[1], words[2], words[3]
	return err
}
