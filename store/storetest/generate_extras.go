package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
)

// What only some records have.

func drawAttributes() *rapid.Generator[semel.Attributes] {
	return rapid.Custom(func(t *rapid.T) semel.Attributes {
		return rapid.MapOfN(drawName(64), drawName(1<<10), 0, semel.MaxAttributes).Draw(t, "map")
	})
}

func drawConfirmation() *rapid.Generator[*semel.Confirmation] {
	token := rapid.Custom(func(t *rapid.T) (token semel.ConfirmationToken) {
		copy(token.Digest[:], rapid.SliceOfN(rapid.Byte(), len(token.Digest), len(token.Digest)).Draw(t, "digest"))
		token.ExpiresAt = drawTime().Draw(t, "expires")
		return token
	})
	return rapid.Ptr(rapid.Custom(func(t *rapid.T) semel.Confirmation {
		c := semel.Confirmation{
			Tries: rapid.IntRange(0, 1<<20).Draw(t, "tries"), Principal: drawName(maxName).Draw(t, "principal"),
			ConfirmedAt: drawTime().Draw(t, "confirmed"),
		}
		if rapid.Bool().Draw(t, "given out") {
			c.Tokens = rapid.SliceOfN(token, 1, 4).Draw(t, "tokens")
		}
		return c
	}), true)
}

func drawMessage() *rapid.Generator[semel.Message] {
	states := rapid.SampledFrom([]semel.MessageState{semel.MessagePending, semel.MessageDelivered, semel.MessageParked, semel.MessageDiscarded})
	return rapid.Custom(func(t *rapid.T) semel.Message {
		return semel.Message{
			ID: drawName(maxName).Draw(t, "message id"), Name: drawName(maxName).Draw(t, "name"), Destination: drawName(maxName).Draw(t, "destination"),
			ContentType: drawName(maxName).Draw(t, "type"), Payload: drawResult().Draw(t, "payload").Data, Order: drawName(maxName).Draw(t, "order"),
			State: states.Draw(t, "message state"), Tries: rapid.IntRange(0, 1<<20).Draw(t, "tries"),
			NextAt: drawTime().Draw(t, "next"), CreatedAt: drawTime().Draw(t, "created"), SettledAt: drawTime().Draw(t, "settled"),
			Failure: drawFailure().Draw(t, "failure"),
		}
	})
}

func drawCompensation() *rapid.Generator[*semel.Compensation] {
	states := rapid.SampledFrom([]semel.CompensationState{semel.CompensationStarted, semel.CompensationDone, semel.CompensationFailed})
	return rapid.Ptr(rapid.Custom(func(t *rapid.T) semel.Compensation {
		return semel.Compensation{
			Operation: drawName(maxName).Draw(t, "operation"), Principal: drawName(maxName).Draw(t, "principal"), Key: drawName(maxKey).Draw(t, "key"),
			Shared: rapid.Bool().Draw(t, "shared"),
			State:  states.Draw(t, "compensation state"), Reason: drawText().Draw(t, "reason"),
			StartedAt: drawTime().Draw(t, "started"), SettledAt: drawTime().Draw(t, "settled"), NextAt: drawTime().Draw(t, "next"),
			Failure: drawFailure().Draw(t, "failure"),
		}
	}), true)
}

func drawPolicy() *rapid.Generator[semel.Policy] {
	return rapid.Custom(func(t *rapid.T) semel.Policy {
		return semel.Policy{
			Lease: time.Duration(rapid.Int64().Draw(t, "lease")), Window: time.Duration(rapid.Int64().Draw(t, "window")),
			MaxResult: rapid.Int().Draw(t, "most"), Retry: rapid.Bool().Draw(t, "retry"), Ledger: rapid.Bool().Draw(t, "ledger"),
			Archive: rapid.Bool().Draw(t, "archive"), Reconcile: rapid.Bool().Draw(t, "reconcile"),
		}
	})
}
