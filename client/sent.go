package client

import (
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

func sentMessages(messages []semel.Message) []wire.Sending {
	var list []wire.Sending
	for i := range messages {
		m := &messages[i]
		list = append(list, wire.Sending{
			Name: m.Name, Destination: m.Destination, ContentType: m.ContentType, PayloadBytes: wire.Base64(m.Payload), Order: m.Order,
		})
	}
	return list
}

func sentFinding(f *store.EffectFinding) wire.Finding {
	return wire.Finding{Name: f.Name, State: f.State, Result: sentResult(f.Result), Error: sentFailure(f.Failure)}
}

// maxText bounds the code and the message of a failure, in bytes. The service refuses
// longer ones.
const maxText = 1 << 10

func sentFailure(f *store.Failure) *wire.Failure {
	if f == nil {
		return nil
	}
	return &wire.Failure{Code: cut(f.Code), Message: cut(f.Message)}
}

// cut shortens a text to the length that the service accepts.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText-3], "\uFFFD")
}

// sentResult always uses base64, so that no encoder on the way can change a byte.
func sentResult(res semel.Result) wire.Result {
	return wire.Result{Bytes: wire.Base64(res.Data), Attributes: res.Attributes}
}
