package erasure

import (
	"encoding/json"
	"errors"

	"github.com/semelhq/semel/store"
)

// ErrNotInPayment says that a payment's state says nothing of the event.
var ErrNotInPayment = errors.New("the payment says nothing of the event")

var errNewerPayment = &store.Error{Code: store.CodeUnsupported, Message: "the state of the payment can't be read here: use a later program, or purge it by itself"}

// WithoutEvent is the state of a payment without the decision about one of its events; nil if it has
// no other.
func WithoutEvent(state []byte, event string) (rest []byte, err error) {
	var kept, events map[string]json.RawMessage
	if state == nil {
		return nil, ErrNotInPayment
	}
	if json.Unmarshal(state, &kept) != nil || kept["form"] != nil || json.Unmarshal(kept["events"], &events) != nil {
		return nil, errNewerPayment
	}
	if _, ok := events[event]; !ok {
		return nil, ErrNotInPayment
	}
	delete(events, event)
	if len(events) == 0 {
		return nil, nil
	}
	if kept["events"], err = json.Marshal(events); err != nil {
		return nil, err
	}
	return json.Marshal(kept)
}
