package activitypub_test

import (
	"testing"

	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/store"
)

// TestAnActivityIsFoundByItsAttributes, once for each inbox that it is in.
func TestAnActivityIsFoundByItsAttributes(t *testing.T) {
	w := newWorld(t, func(o *activitypub.Options) {
		o.Attributes = map[string]string{"context": "json:/context", "reply": "json:/object/inReplyTo"}
	})
	w.wantAt("/inbox", 202, "queued", note("1", `,"context":"https://there.example/cases/9911","to":["`+alice+`","https://here.example/actors/carol"]`))
	page, err := w.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{"context": "https://there.example/cases/9911"}})
	if err != nil || len(page.Records) != 2 || page.Records[0].Attributes["actor"] != bob {
		t.Errorf("%+v, %v", page.Records, err)
	}
	if err := (activitypub.Options{Attributes: map[string]string{"signed": "json:/signed"}}).Validate(); err == nil {
		t.Error("an attribute in place of the door's own")
	}
}
