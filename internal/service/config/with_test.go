package config

import (
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

func TestWith(t *testing.T) {
	base := Default()
	t.Run("an operation and a route get their defaults and join the others", func(t *testing.T) {
		c, err := base.With(Operation{Name: "proxy", Lease: Duration(time.Second)},
			[]Route{{Match: "/", Upstream: "http://127.0.0.1:9000", Operation: "proxy", Profile: "stripe"}}, Servers{})
		if err != nil {
			t.Fatal(err)
		}
		op := c.operation("proxy")
		if op == nil || op.Lease != Duration(time.Second) || op.Class != semel.Strict || op.OnFailure != semel.ReplayFailure || op.Window != Duration(24*time.Hour) {
			t.Errorf("%+v", op)
		}
		if r := c.Routes[0]; r.Key != "optional" || r.Mode != "enforce" || r.KeyHeader != "Idempotency-Key" || r.MaxBody != 10<<20 {
			t.Errorf("%+v", r)
		}
		if len(base.Routes) != 0 || len(base.Operations) != 1 || len(c.Operations) != 2 {
			t.Error("the original was changed")
		}
	})
	t.Run("an operation of the same name is replaced", func(t *testing.T) {
		c, err := base.With(Operation{Name: DefaultOperation, Financial: true, Archive: true}, []Route{{Match: "/", Upstream: "http://h"}}, Servers{})
		if err != nil || len(c.Operations) != 1 || c.Operations[0].Window != Duration(168*time.Hour) || c.Routes[0].Operation != DefaultOperation {
			t.Errorf("%+v, %v", c, err)
		}
	})
	t.Run("what is wrong is said by path, everything at once", func(t *testing.T) {
		_, err := base.With(Operation{Name: "proxy", Repeats: Repeats{OnAbandoned: "holt"}, Shields: []semel.Shield{"S7"}}, []Route{{Match: "x", Mode: "enfore", Unguarded: []string{"sse", "ssh"}, MaxBody: -1}}, Servers{})
		want := `operations[1].on_abandoned: "holt" is not one of hold, retry; did you mean hold?
operations[1].shields[0]: "S7" is not one of S1, S2, S3, S4
routes[0].match: "x" is not a pattern: at offset 0: host/path missing /; write a method and a path, such as POST /charges/{id}
routes[0].max_body: -1 is not between 1 and 1TiB
routes[0].mode: "enfore" is not one of enforce, shadow, off; did you mean enforce?
routes[0].unguarded[1]: "ssh" is not one of sse, upgrade, grpc; did you mean sse?
routes[0].upstream: upstream is missing`
		if errs, ok := errors.AsType[Errors](err); !ok || errs.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	})
}
