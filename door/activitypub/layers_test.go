package activitypub_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// forgetful is a store that forgets the records of a scope, so that nothing is a duplicate by
// them: a layer that is switched off.
type forgetful struct {
	semel.Store
	scope string
}

func (s *forgetful) forgets(id store.ID) bool {
	_, scope := id.Scope()
	return s.scope != "" && strings.HasPrefix(scope, s.scope)
}

func (s *forgetful) Get(ctx context.Context, id store.ID) (*semel.Record, error) {
	if s.forgets(id) {
		return nil, store.ErrNotFound
	}
	return s.Store.Get(ctx, id)
}

func (s *forgetful) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if s.forgets(w.Record.ID) {
		return w.Record, true, nil
	}
	return s.Store.Apply(ctx, w)
}

// TestEachLayerCanFail switches off each of the three layers that keep an activity from having
// two effects: the record of its id, the record of the inbox, and the step of the handler. What
// would go wrong without the other two shows that the layer is off.
func TestEachLayerCanFail(t *testing.T) {
	clause.Proves(t, "VUL-00-001")
	for _, off := range []string{"", store.ActivityScope, "actor:", "step"} {
		t.Run(cmp.Or(off, "none")+" is off", func(t *testing.T) {
			effects, runs := 0, 0
			reports := &reports{states: map[string]string{}}
			var w *world
			w = newWorldOn(t, &forgetful{memstore.New(), off}, func(o *activitypub.Options) {
				o.Handle = func(ctx context.Context, a *activitypub.Activity) error {
					var body struct{ Object string }
					if err := json.Unmarshal(a.Body, &body); err != nil {
						return err
					}
					runs++
					if off == "step" {
						effects++
						return nil
					}
					create := activitypub.Creation{Name: "create_report", Create: func(context.Context) (bool, error) {
						created, err := reports.create(body.Object)
						if created {
							effects++
						}
						return created, err
					}}
					return create.Take(ctx, w.logger, a)
				}
			})
			for range 3 {
				w.want(202, "queued", about("Offer", "1", "x"))
			}
			wantRuns := 1
			if off == "actor:" {
				wantRuns = 3 // each delivery is queued
			}
			again := slices.Clone(w.due)
			if err := errors.Join(w.work()...); err != nil {
				t.Error(err)
			}
			if effects != 1 || runs != wantRuns {
				t.Errorf("%d effects of %d runs, want 1 of %d", effects, runs, wantRuns)
			}
			// A message that comes again, as after a crash of its handler: only the step knows.
			w.due = again
			if err := errors.Join(w.work()...); err != nil || (effects == 1) != (off != "step") {
				t.Errorf("%d effects after the message came again, %v", effects, err)
			}
			// Another content under the id, in another inbox: only the record of the id knows.
			w.wantAt("/actors/carol/inbox", 202, map[bool]string{true: `"queued`, false: "not processed"}[off == store.ActivityScope],
				strings.Replace(about("Offer", "1", "x"), "/r/x", "/r/y", 1))
		})
	}
}
