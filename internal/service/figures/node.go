package figures

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/internal/nodes"
	"github.com/semelhq/semel/store"
)

// How long figures stay in the store.
const (
	KeptMinutes = 3 * time.Hour      // of single minutes
	KeptHours   = 7 * 24 * time.Hour // of hours
)

const (
	operation = "semel.figures" // of the records in which the figures are
	// keepFor is how long a node's cells outlive it: until none of its hours is of
	// interest.
	keepFor = KeptHours + time.Hour
	// maxCell bounds a cell, in bytes, well below what a store takes.
	maxCell = 768 << 10
	// storeTime bounds a write, the last one included, and a reading.
	storeTime = 5 * time.Second
)

// node is what this process has counted. It keeps two cells: the running minute is
// rewritten every second and is small; the history is rewritten once a minute.
type node struct {
	id, prefix                 string      // prefix begins the names of its cells
	recent, history, directory *store.Cell // the last names the nodes that have cells, with when each was named last

	turn behind.Turn // held while the cells are written

	mu      sync.Mutex
	minute  slot // that is running
	folded  int64
	minutes []slot
	hours   []slot
	records []Record // of note in the hour of the running minute

	unwritten struct{ recent, history bool }
	listed    int64                          // hour in which the directory has named this node last
	erased    func(semel.ID, time.Time) bool // what other nodes' cells must not name; nil: nothing
}

// keptRecent is the cell of the running minute. Seq counts the node's minutes. The records
// cover its whole hour.
type keptRecent struct {
	Series []Series `json:"s"`
	Seq    int64    `json:"seq"`
	Minute keptSlot `json:"m"`
}

// keptHistory has the minutes up to the number Folded.
type keptHistory struct {
	Series  []Series   `json:"s"`
	Folded  int64      `json:"folded"`
	Minutes []keptSlot `json:"m"`
	Hours   []keptSlot `json:"h"`
}

func cellID(key string) semel.ID { return semel.ID{Operation: operation, Key: key} }

func (n *node) init(st semel.Store, prefix, id string) {
	n.id, n.prefix, n.turn = id, prefix, make(behind.Turn, 1)
	n.recent, n.history = store.NewCell(st, cellID(prefix+"recent/"+id)), store.NewCell(st, cellID(prefix+"history/"+id))
	n.directory = store.NewCell(st, cellID("nodes"))
}

// Run writes the figures of this node until ctx is done, and then the last ones, unless
// somebody calls Close first. Without Run, figures cover only this process, in one minute.
func (f *Figures) Run(ctx context.Context) {
	behind.Every(ctx, f.every, func(ctx context.Context) { _ = f.write(ctx) })
	_ = f.Close(context.WithoutCancel(ctx))
}

// Close writes the last figures, within ctx. If that fails, it returns an error, and the
// figures of the last second or more are lost. Counts that come afterwards are lost, too.
func (f *Figures) Close(ctx context.Context) error {
	if f.closed.Swap(true) {
		return nil
	}
	return f.write(ctx)
}

// write takes in the new counts and writes them. If the store fails, the next call writes
// everything: a cell has sums, not differences, so that writing it again is harmless.
func (f *Figures) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if !f.own.turn.Take(ctx) {
		return ctx.Err()
	}
	defer f.own.turn.Done()
	now, err := f.store.Now(ctx)
	if err != nil {
		return err
	}
	second := now.Time().Unix()
	if err := f.eraseOthers(ctx); err != nil {
		return err
	}
	if err := f.writeCells(ctx, second); err != nil { // which names this node in the directory
		return err
	}
	_ = f.running.Stay(ctx, second, f.closed.Load()) // the next write tries again
	return f.tenants.writeCells(ctx, second)
}

func (f *Figures) writeCells(ctx context.Context, second int64) error {
	n := &f.own
	n.mu.Lock()
	f.gather(second)
	recent, history := n.encode()
	n.mu.Unlock()
	err := n.write(ctx, second, recent, history)
	if err == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unwritten.recent = n.unwritten.recent || recent != nil
	n.unwritten.history = n.unwritten.history || history != nil
	return err
}

// gather takes in the new counts. The caller holds f.own.mu.
func (f *Figures) gather(now int64) {
	n := &f.own
	minute, hour := now-now%60, now-now%3600
	if n.minute.at == 0 {
		n.minute = newSlot(minute)
	}
	fresh, touched := f.take(hour)
	if !fresh.empty() {
		n.minute, n.records = n.minute.plus(fresh), noted(n.records, touched)
		n.unwritten.recent = true
	}
	if minute == n.minute.at {
		return
	}
	if !n.minute.empty() {
		n.fold(now)
	}
	if hour != n.minute.at-n.minute.at%3600 {
		n.records = nil
	}
	n.minute = newSlot(minute)
}

// fold moves the running minute, which is over, into the history.
func (n *node) fold(now int64) {
	n.folded++
	n.unwritten.history = true
	n.minutes = append(n.minutes, n.minute)
	hour := n.minute
	hour.at -= hour.at % 3600
	i := slices.IndexFunc(n.hours, func(s slot) bool { return s.at == hour.at })
	if i < 0 {
		i = len(n.hours)
		n.hours = append(n.hours, newSlot(hour.at))
	}
	n.hours[i] = n.hours[i].plus(hour)
	n.hours[i].records = n.records
	n.minutes = since(n.minutes, now-int64(KeptMinutes/time.Second))
	n.hours = since(n.hours, now-int64(KeptHours/time.Second))
}

// since are the slots from a time on, as a list of its own.
func since(slots []slot, from int64) []slot {
	return slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return s.at < from })
}

// encode returns the values of the cells that aren't written yet. The caller holds n.mu.
func (n *node) encode() (recent, history []byte) {
	if n.unwritten.history {
		history = n.keptHistory()
	}
	if n.unwritten.recent {
		var series names
		minute := n.minute
		minute.records = n.records
		kept := keptRecent{Seq: n.folded + 1, Minute: minute.kept(&series)}
		kept.Series = series.list
		recent = encoded(kept)
	}
	n.unwritten.recent, n.unwritten.history = false, false
	return recent, history
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return data
}

// write writes the cells. The running minute comes after the history: until then, its cell has
// the minute that the history gets.
func (n *node) write(ctx context.Context, now int64, recent, history []byte) error {
	if recent == nil && history == nil {
		return nil
	}
	if hour := now - now%3600; hour != n.listed && n.prefix == "" {
		if err := n.list(ctx, now); err != nil {
			return err
		}
		n.listed = hour
	}
	if err := put(ctx, n.history, history); err != nil {
		return err
	}
	return put(ctx, n.recent, recent)
}

// put replaces the data of a cell of this node, unless it is nil.
func put(ctx context.Context, cell *store.Cell, data []byte) error {
	if data == nil {
		return nil
	}
	// A crash before this write leaves the sums of a second ago, a crash after it nothing
	// to do. The store purges the cell when nobody has written it for keepFor.
	return cell.Change(ctx, func(store.CellValue) (store.CellValue, error) {
		return store.CellValue{Data: data, KeepFor: keepFor}, nil
	})
}

// keptHistory is the history, cut to fit a cell: it drops the oldest lists of records first,
// and then the oldest minutes and hours.
func (n *node) keptHistory() []byte {
	minutes, hours := n.minutes, slices.Clone(n.hours)
	for lists := 0; ; {
		var series names
		kept := keptHistory{Folded: n.folded}
		for i := range minutes {
			kept.Minutes = append(kept.Minutes, minutes[i].kept(&series))
		}
		for i := range hours {
			kept.Hours = append(kept.Hours, hours[i].kept(&series))
		}
		kept.Series = series.list
		data := encoded(kept)
		switch {
		case len(data) <= maxCell:
			return data
		case lists < len(hours):
			for end := min(lists+24, len(hours)); lists < end; lists++ {
				hours[lists].records = nil
			}
		case len(minutes) >= len(hours):
			minutes = minutes[(len(minutes)+1)/2:]
		default:
			hours = hours[(len(hours)+1)/2:]
		}
	}
}

// list enters this node in the directory, and removes nodes that have lost their cells.
func (n *node) list(ctx context.Context, now int64) error {
	// A crash before this write leaves nothing, a crash after it a name without cells, which is
	// read as nothing and struck out in time.
	return nodes.Change(ctx, n.directory, 2*keepFor, func(seen int64) int64 { return seen }, func(named map[string]int64) {
		maps.DeleteFunc(named, func(_ string, seen int64) bool { return seen < now-int64(keepFor/time.Second) })
		named[n.id] = now
	})
}
