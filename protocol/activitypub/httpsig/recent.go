package httpsig

import "container/list"

// recent keeps the entries that were used last (an LRU cache). It needs a lock.
type recent struct {
	size  int
	order *list.List // of names, the latest in front
	at    map[string]*list.Element
}

type named struct {
	name string
	*entry
}

func newRecent(size int) *recent {
	return &recent{size: size, order: list.New(), at: make(map[string]*list.Element)}
}

func (r *recent) get(name string) *entry {
	el := r.at[name]
	if el == nil {
		return nil
	}
	r.order.MoveToFront(el)
	return el.Value.(named).entry
}

// put adds a name that isn't there.
func (r *recent) put(name string, e *entry) {
	r.at[name] = r.order.PushFront(named{name, e})
	for r.order.Len() > r.size {
		r.remove(r.order.Back().Value.(named).name)
	}
}

func (r *recent) remove(name string) {
	if el := r.at[name]; el != nil {
		r.order.Remove(el)
		delete(r.at, name)
	}
}
