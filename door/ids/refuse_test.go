package ids

import (
	"net/http/httptest"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
)

// Every code of an error is a problem with the words of the table.
func TestCodes(t *testing.T) {
	doortest.Codes(t, nil, func(t *testing.T, code semel.Code) doortest.Reply {
		w := httptest.NewRecorder()
		(&Gateway{}).refuse(w, &semel.Error{Code: code})
		return doortest.ReplyTo(t, w)
	})
}
