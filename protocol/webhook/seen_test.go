package webhook

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// seen is an event with what its attributes say.
type seen struct {
	semel.Event
	receiver, kind, content, first string
	parked                         semel.ID
}

func seenBy(t *testing.T, e semel.Event) seen {
	attrs := map[string]string{}
	for _, a := range e.Attrs {
		attrs[a.Key] = a.Value.String()
	}
	s := seen{e, attrs["webhook"], attrs["type"], attrs["digest"], attrs["first_digest"], semel.ID{}}
	if parked := attrs["parked"]; parked != "" {
		var err error
		if s.parked, err = store.DecodeID(parked); err != nil {
			t.Error(err)
		}
	}
	if e.Door != Door || attrs["decision"] != string(e.Decision) || (e.Err == nil) != (e.Code == "") || e.ID.Key != "" && attrs["record"] != e.ID.Encode() {
		t.Errorf("told of %+v", e)
	}
	return s
}
