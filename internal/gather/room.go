package gather

import "sync/atomic"

// Room bounds the items of queues, in number and in bytes.
type Room struct {
	MaxItems, MaxBytes int64

	items, bytes atomic.Int64
}

// NewRoom makes a room that is large enough for all items that can be sent before the first of
// them has waited too long, and small enough to leave memory for everything else.
func NewRoom() *Room { return &Room{MaxItems: 1 << 14, MaxBytes: 64 << 20} }

// enter takes room for an item, and reports whether there was enough. If so, call leave later.
func (r *Room) enter(size int64) bool {
	if r.items.Add(1) <= r.MaxItems && r.bytes.Load() < r.MaxBytes {
		r.bytes.Add(size)
		return true
	}
	r.items.Add(-1)
	return false
}

// full returns how full the room is, by items or bytes, whichever is fuller.
func (r *Room) full() float64 {
	return min(1, max(float64(r.items.Load())/float64(r.MaxItems), float64(r.bytes.Load())/float64(r.MaxBytes)))
}

func (r *Room) leave(size int64) {
	r.items.Add(-1)
	r.bytes.Add(-size)
}
