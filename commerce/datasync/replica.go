package datasync

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// Options configure a Replica.
type Options struct {
	// Name of the replica, up to 64 bytes: replicas of one name on one store share their
	// states. Defaults to "datasync".
	Name string
	// Origin names this side in its changes, in up to 64 bytes. Required. Never change
	// it: the side's own changes would come back as another's.
	Origin string
	// Entities are the kinds of entities, and how each is merged. Defaults to "user" by
	// LastWriteWins, and "consent" and "product" by AppendOnly.
	Entities map[string]Rule
	// MaxAhead is how far the time of a received change may be ahead of the store's
	// clock. Defaults to 1 minute. A side with a slow clock loses conflicts; but its own
	// change gets a later time than the change that it follows.
	MaxAhead time.Duration
	// Apply writes a new state to your database. Required. Write only if the database has
	// a lower Sequence of the entity, because an earlier state may arrive later, and the
	// same again. After an error it is called again.
	Apply func(ctx context.Context, s State) error
	// Send sends a change of this side to the other. Required. It returns nil if the other
	// side has it. After an error it is sent again, unless the error is marked by
	// Park of package dispatch.
	Send func(ctx context.Context, c Change) error
}

// Replica is one side of two that keep their data equal. It has no state of its own: any
// number of them, on any number of nodes, may serve one store. Its methods may be called
// concurrently.
type Replica struct {
	store semel.Store
	opts  Options
}

// New makes a replica. You need a dispatcher on the engine that passes the messages of its
// destination to [Replica.Work].
func New(engine *semel.Engine, opts Options) (*Replica, error) {
	opts.Name = cmp.Or(opts.Name, "datasync")
	opts.MaxAhead = cmp.Or(opts.MaxAhead, semel.DefaultClockSkew)
	opts.Entities = maps.Clone(opts.Entities)
	if opts.Entities == nil {
		opts.Entities = map[string]Rule{"user": LastWriteWins, "consent": AppendOnly, "product": AppendOnly}
	}
	var errs []error
	for field, text := range map[string]string{"Name": opts.Name, "Origin": opts.Origin} {
		if text == "" || len(text) > maxOrigin || !store.ValidText(text) {
			errs = append(errs, fmt.Errorf("datasync: %s must have 1 to %d bytes of UTF-8 without NUL", field, maxOrigin))
		}
	}
	if opts.Apply == nil || opts.Send == nil || opts.MaxAhead < 0 {
		errs = append(errs, errors.New("datasync: Apply or Send is missing, or MaxAhead is negative"))
	}
	for entity, rule := range opts.Entities {
		if entity == "" || len(entity) > maxOrigin || !store.ValidText(entity) || rule != LastWriteWins && rule != AppendOnly {
			errs = append(errs, fmt.Errorf("datasync: the entity %q has the rule %q, or a name of more than %d bytes", entity, rule, maxOrigin))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Replica{engine.Internal().Store(), opts}, nil
}

// Destination is that of the replica's messages.
func (r *Replica) Destination() string { return r.opts.Name }

// Put makes a version of an entity on this side. For LastWriteWins it is one above the
// version of the state that you have edited, or 1 if there is none. For AppendOnly it is
// one that isn't there yet; number the entries of a history from 1, without gaps.
//
// [ErrVersion] means that somebody else was faster: read the state and decide again. After
// any other error that isn't [semel.CodeInvalidCall], the version may have been made;
// put it again to find out. That is harmless.
func (r *Replica) Put(ctx context.Context, ref Ref, version int64, content json.RawMessage) (State, error) {
	c := Change{Ref: ref, Version: version, Origin: r.opts.Origin, Content: content}
	s, _, err := r.change(ctx, c, func(s *State, now store.Instant) (Outcome, error) {
		rule := r.opts.Entities[ref.Entity]
		// Later than the last change, which another clock may have dated.
		c.Time = now.Time().Truncate(time.Millisecond)
		if len(s.Changes) > 0 && rule == LastWriteWins && !c.Time.After(s.Changes[0].Time) {
			c.Time = s.Changes[0].Time.Add(time.Millisecond)
		}
		if err := c.validate(); err != nil {
			return "", err
		}
		i := s.find(c.Content)
		switch {
		case i >= 0 && s.Changes[i].Version == version && (s.Changes[i].Origin == c.Origin || rule == AppendOnly):
			return Duplicate, nil
		case rule == LastWriteWins && version != s.Version+1, rule == AppendOnly && len(s.Changes) > 0:
			return "", fmt.Errorf("%w: %d is there, %d isn't the next", ErrVersion, s.Version, version)
		}
		return s.merge(rule, c, r.opts.Origin)
	})
	return s, err
}

// Receive takes a change from the other side. If the error is nil, this side has it, or
// needs it no more, and the other side need not send it again. [ErrAhead],
// [ErrFull] and [semel.CodeInvalidCall] refuse a change; after any other error it must
// be sent again.
func (r *Replica) Receive(ctx context.Context, c Change) (Outcome, error) {
	if err := c.validate(); err != nil {
		return "", err
	}
	if c.Origin == r.opts.Origin {
		return Echo, nil
	}
	_, out, err := r.change(ctx, c, func(s *State, now store.Instant) (Outcome, error) {
		if ahead := c.Time.Sub(now.Time()); ahead > r.opts.MaxAhead {
			return "", fmt.Errorf("%w: by %v, more than %v", ErrAhead, ahead.Round(time.Millisecond), r.opts.MaxAhead)
		}
		return s.merge(r.opts.Entities[c.Entity], c, r.opts.Origin)
	})
	return out, err
}

// Get returns the state of an entity, or for AppendOnly of one version; otherwise the
// version isn't used. [semel.ErrNotFound] means that there is none.
func (r *Replica) Get(ctx context.Context, ref Ref, version int64) (State, error) {
	cell, err := r.cell(ref, version)
	if err != nil {
		return State{}, err
	}
	was, err := cell.Load(ctx)
	if err != nil {
		return State{}, err
	}
	if was.Data == nil {
		return State{}, semel.ErrNotFound
	}
	return decode(ref, was.Data)
}

// History yields the versions of an AppendOnly entity from 1 on. It ends before the first
// missing version, even if later ones have already arrived. It ends after an error.
func (r *Replica) History(ctx context.Context, ref Ref) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		for version := int64(1); ; version++ {
			s, err := r.Get(ctx, ref, version)
			if errors.Is(err, semel.ErrNotFound) || !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// cell is where the state is that a version of an entity belongs to.
func (r *Replica) cell(ref Ref, version int64) (*store.Cell, error) {
	if r.opts.Entities[ref.Entity] == "" || ref.ID == "" || len(ref.ID) > store.MaxNameLen {
		return nil, invalid("there is no entity %.64q, or its id doesn't have 1 to %d bytes", ref.Entity, store.MaxNameLen)
	}
	id := r.id(ref, version)
	return store.NewCell(r.store, id), id.Validate()
}

// id is the identity of that cell's record.
func (r *Replica) id(ref Ref, version int64) semel.ID {
	if r.opts.Entities[ref.Entity] == LastWriteWins {
		version = 0
	}
	return semel.ID{Tenant: ref.Tenant, Operation: "semel.datasync/" + r.opts.Name, Key: key(ref, version)}
}

// key is the text of commerce.Sync for a version above zero, and its beginning otherwise.
func key(ref Ref, version int64) string {
	k := "sync:" + escape(ref.Entity) + ":" + escape(ref.ID)
	if version > 0 {
		k += ":" + strconv.FormatInt(version, 10)
	}
	return k
}

// escape keeps the parts of a key apart, as commerce.Format does.
func escape(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") }

func decode(ref Ref, data []byte) (State, error) {
	s := State{Ref: ref}
	if data == nil {
		return s, nil
	}
	if err := form.Read(data, 1, &s); err != nil {
		return s, fmt.Errorf("datasync: the state can't be read: %w", err)
	}
	for i := range s.Changes {
		s.Changes[i].Ref = ref
	}
	return s, nil
}
