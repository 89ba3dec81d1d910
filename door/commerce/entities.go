package commerce

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/datasync"
)

// State is the state of an entity, or of one version of it, for callers and for the program
// that applies it.
type State struct {
	datasync.Ref
	Version int64 `json:"version"`
	// Sequence rises with every state on this side: write this one if yours is lower.
	Sequence int64 `json:"sequence"`
	// Content is the content of the change that won, or that arrived first.
	Content json.RawMessage `json:"content"`
	// Contested: the two sides wrote different contents for one version, and Changes has all of them.
	Contested bool              `json:"contested,omitempty"`
	Changes   []datasync.Change `json:"changes"`
}

// StateOf describes a state.
func StateOf(s datasync.State) State {
	return State{s.Ref, s.Version, s.Sequence, s.Changes[0].Content, s.Contested(), s.Changes}
}

func described(s datasync.State, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return StateOf(s), nil
}

// ref returns the entity in the address. Only callers who act for users may know about it.
func (q *request) ref() (datasync.Ref, error) {
	return datasync.Ref{Tenant: q.caller.Tenant, Entity: q.r.PathValue("entity"), ID: q.r.PathValue("id")}, q.backEnd()
}

// putEntity makes a version (MAP-SYNC.1 to MAP-SYNC.3).
func (q *request) putEntity() (any, error) {
	var in struct {
		Version int64           `json:"version"`
		Content json.RawMessage `json:"content"`
	}
	ref, err := q.ref()
	if err != nil {
		return nil, err
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	return described(q.replica.Put(q.r.Context(), ref, in.Version, in.Content))
}

// getEntity returns the newest state, or the one of the version in the parameter.
func (q *request) getEntity() (any, error) {
	ref, err := q.ref()
	if err != nil {
		return nil, err
	}
	if _, err := q.owner("version"); err != nil {
		return nil, err
	}
	version, err := strconv.ParseInt(cmp.Or(q.r.URL.Query().Get("version"), "0"), 10, 64)
	if err != nil || version < 0 {
		return nil, invalid("the version is a whole number from 1")
	}
	return described(q.replica.Get(q.r.Context(), ref, version))
}

// takeChange takes a change from the other side. Whatever the outcome, the other side doesn't
// have to send it again (MAP-SYNC.4, MAP-SYNC.5).
func (q *request) takeChange() (any, error) {
	ref, err := q.ref()
	if err != nil {
		return nil, err
	}
	text, err := q.text()
	if err != nil {
		return nil, err
	}
	c, err := datasync.ParseChange(ref.Tenant, text)
	if err != nil {
		return nil, err
	}
	outcome, err := q.replica.Receive(q.r.Context(), c)
	if err != nil {
		return nil, err
	}
	q.event.ID = semel.ID{Operation: "semel.datasync/" + q.replica.Destination()}
	return map[string]datasync.Outcome{"outcome": outcome}, nil
}
