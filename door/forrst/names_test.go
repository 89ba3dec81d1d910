package forrst_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestACallIsFoundByItsAttributes: by what the arguments and the header of the request say that
// ran. One that came to nothing leaves none of its names.
func TestACallIsFoundByItsAttributes(t *testing.T) {
	clause.Proves(t, "FOR-DATA.3")
	runs := 0
	f := charging(semel.Operation{}, func(context.Context, semel.Execution, *forrst.Request) (any, error) {
		if runs++; runs == 1 {
			return nil, semel.Aborted(errors.New("the till is closed"))
		}
		return "done", nil
	})
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{f}, Attributes: map[string]string{"order": "json:/order/id", "till": "header:X-Till", "coupon": "json:/coupon"}})
	for _, till := range []string{"1", "2"} {
		w.post(call("req_"+till, `{"order":{"id":9911}}`, `{"key":"k"}`), func(r *http.Request) { r.Header.Set("X-Till", till) })
	}
	for name, want := range map[string]struct {
		value string
		found int
	}{"order": {"9911", 1}, "till": {"2", 1}, "request_id": {"req_2", 1}, "coupon": {"", 0}} {
		page, err := w.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{name: want.value}})
		if err != nil || len(page.Records) != want.found {
			t.Errorf("%s=%s: %+v, %v", name, want.value, page.Records, err)
		}
	}
	if page, err := w.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{"till": "1"}}); err != nil || len(page.Records) > 0 {
		t.Errorf("by a request that came to nothing: %+v, %v", page.Records, err)
	}
	_, err := forrst.New(w.engine, forrst.Options{Functions: []forrst.Function{f}, Attributes: map[string]string{"arguments_hash": "json:/hash"}})
	if err == nil || !strings.Contains(err.Error(), "attribute") {
		t.Errorf("an attribute in place of the door's own: %v", err)
	}
}
