package service_test

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door"
)

// TestRefusalsOfLimitsAreExplained: the type of a refusal is the address of its
// explanation, and the client has the code.
func TestRefusalsOfLimitsAreExplained(t *testing.T) {
	s := start(t, write(t, "store: {url: 'memory:'}\n"))
	for _, code := range []semel.Code{door.CodeOverloaded, door.CodeOverBudget, door.CodeBodyTooSlow} {
		if status, _, text := do(t, "GET", s.data("/semel/problems/"+string(code)), ""); status != 200 {
			t.Errorf("%s: %d %s", code, status, text)
		}
	}
	if client.CodeOverloaded != door.CodeOverloaded || client.CodeBodyTooSlow != door.CodeBodyTooSlow {
		t.Error("the client knows other codes")
	}
}
