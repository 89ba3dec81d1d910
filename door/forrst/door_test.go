package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/forrst"
)

func TestDoor(t *testing.T) {
	told := func(status int, code forrst.Code) doortest.Reply {
		return doortest.Reply{Status: status, Code: string(code)}
	}
	doortest.Run(t, doortest.Door{
		Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
			s, err := forrst.New(e, forrst.Options{Identify: identify, PlainHash: true, Functions: []forrst.Function{
				charging(semel.Operation{}, func(context.Context, semel.Execution, *forrst.Request) (any, error) { return "done", work() }),
			}})
			if err != nil {
				t.Fatal(err)
			}
			return func(key string) doortest.Reply {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/forrst", strings.NewReader(call("1", `{"amount":1}`, fmt.Sprintf(`{"key":%q}`, key))))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				var got said
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
					t.Fatalf("%v: %s", err, w.Body)
				}
				reply := told(w.Code, got.code())
				reply.Action = got.Meta.Action
				reply.Body = string(got.Result) // around it the answer names its request, and what it got
				return reply
			}
		},
		Differs: map[semel.Code]doortest.Reply{
			semel.CodeConflict:         told(http.StatusConflict, forrst.IdempotencyConflict),
			semel.CodeInFlight:         told(http.StatusConflict, forrst.IdempotencyProcessing),
			semel.CodeHeld:             told(http.StatusConflict, forrst.IdempotencyProcessing),
			semel.CodeThrottled:        told(http.StatusTooManyRequests, forrst.RateLimited),
			semel.CodeTooLate:          told(http.StatusGone, forrst.Gone),
			semel.CodeOtherCaller:      told(http.StatusConflict, forrst.Conflict),
			semel.CodeSuperseded:       told(http.StatusConflict, forrst.Conflict),
			semel.CodeOtherDoor:        told(http.StatusConflict, forrst.Conflict),
			semel.CodeStoreUnavailable: told(http.StatusServiceUnavailable, forrst.Unavailable),
			semel.CodeClosed:           told(http.StatusServiceUnavailable, forrst.Unavailable),
		},
	})
}
