package ids

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Every code of an error is a problem with the words of the table.
func TestCodes(t *testing.T) {
	doortest.Codes(t, nil, func(t *testing.T, code semel.Code) doortest.Reply {
		w := httptest.NewRecorder()
		(&Gateway{}).refuse(w, &semel.Error{Code: code})
		var p semelhttp.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Detail == "" || p.Title == "" {
			t.Fatalf("%v: %s", err, w.Body)
		}
		return doortest.Reply{Status: w.Code, Code: string(p.Code)}
	})
}
