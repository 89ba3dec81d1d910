package a2a

import "github.com/semelhq/semel"

// Refusal is what the sender of a message to a wrapped agent is told.
func Refusal(code semel.Code) error { return sdkError(refusalFor(code)) }
