package webhook

import (
	"testing"

	"github.com/semelhq/semel"
)

// seen is an event with what its attributes say.
type seen struct {
	semel.Delivered
	receiver, kind, content, first string
	parked                         string // the record with it, as logs show it
}

func seenBy(t *testing.T, e semel.Delivered) seen {
	attrs := map[string]string{}
	for _, a := range e.Attrs {
		attrs[a.Key] = a.Value.String()
	}
	s := seen{e, attrs["webhook"], attrs["type"], attrs["digest"], attrs["first_digest"], attrs["parked"]}
	if e.Door != Name || (e.Err == nil) != (e.Code == "") || e.Err == errNoEvent && e.Decision != "" {
		t.Errorf("told of %+v", e)
	}
	return s
}
