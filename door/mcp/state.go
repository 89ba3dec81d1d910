package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/toolcall"
	"github.com/semelhq/semel/store"
)

// stateOperation is the operation of the cells that say which rounds have used a requestState.
const stateOperation = store.ReservedPrefix + "mcp.state"

// maxRounds bounds the rounds in a cell: a server may give all its callers one word as their state.
const maxRounds = 256

// states is the recorded form of a cell. A state is good for one round each time that the server
// gives it out, and for one if nobody has seen that.
type states struct {
	Form   int     `json:"mcp"`
	Given  int     `json:"given,omitempty"`
	Rounds []round `json:"rounds,omitempty"`
}

// round is one that has used the state.
type round struct {
	Call string `json:"call"`          // digest of its identity, with its arguments and responses
	Key  string `json:"key,omitempty"` // the engine's, of a call without a key
}

// errUnchanged means that a cell is as it should be.
var errUnchanged = errors.New("mcp: nothing changes")

// change changes the cell of a requestState that the caller has from the server.
func (c *conversation) change(ctx context.Context, state string, to func(v *states) error) error {
	sum := sha256.Sum256(canon.FrameList(nil, append(callerOf(&c.who), c.opts.Operation.Name, state)))
	id := store.ID{Tenant: c.call.Tenant, Operation: stateOperation, Key: hex.EncodeToString(sum[:])}
	err := store.NewCell(c.engine.Internal().Store(), id).Change(ctx, func(old store.CellValue) (store.CellValue, error) {
		v := states{Form: form}
		if old.Data != nil && (json.Unmarshal(old.Data, &v) != nil || v.Form != form) {
			return old, &semel.Error{Code: semel.CodeUnsupported, Message: "the uses of the requestState have a form that this version doesn't read"}
		}
		if err := to(&v); err != nil {
			return old, err
		}
		if n := len(v.Rounds) - maxRounds; n > 0 {
			v.Rounds, v.Given = slices.Delete(v.Rounds, 0, n), max(v.Given-n, 0)
		}
		data, _ := json.Marshal(v) // strings and numbers
		return store.CellValue{Data: data, KeepFor: c.opts.Timeout + max(c.policy.op.Window, c.policy.op.Remember)}, nil
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// useState has the round use its requestState, or finds that it has used it before: the same round
// joins the first, or gets its result. Another is refused.
//
// A crash before the cell is written leaves the state unused. A crash after it, before the call is
// claimed, leaves a state that only this round may use, which runs when it comes again. Whoever may
// begin no new call by the quotas leaves no cell.
func (c *conversation) useState(ctx context.Context) error {
	id, mine := c.call.ID(c.policy.op.Share), round{}
	if c.loose {
		id.Key, mine.Key = "", id.Key
	}
	digest := id.Digest()
	mine.Call = hex.EncodeToString(digest[:])
	return c.change(ctx, c.asked.State, func(v *states) error {
		switch {
		case slices.Contains(v.Rounds, mine):
			return errUnchanged
		case len(v.Rounds) < max(v.Given, 1):
			v.Rounds = append(v.Rounds, mine)
			if v.Given == 0 { // the cell is new
				return c.engine.Internal().Afford(ctx, &c.call, c.policy.op.Share, int64(len(mine.Call)+len(mine.Key)))
			}
			return nil
		}
		i := slices.IndexFunc(v.Rounds, func(r round) bool { return r.Call == mine.Call })
		if i < 0 {
			return toolcall.Invalid("another round has used its requestState, which is good for one; begin the call again, without it")
		}
		c.call.Key, c.repeats = v.Rounds[i].Key, true
		return errUnchanged
	})
}

// continues takes note of a result that isn't the last one: of the requestState that the server gives
// out, in particular.
//
// A crash before the write, or an error, leaves a state that one round may use, or none if a round
// has used it before: the client then begins the call again. A crash after it leaves a state that
// nobody has got.
func (c *conversation) continues(ctx context.Context) {
	state, _ := jsonscan.Text(jsonscan.Member(c.result, "requestState"))
	if state == "" {
		return
	}
	if err := c.change(ctx, state, func(v *states) error { v.Given++; return nil }); err != nil {
		c.engine.Internal().Troubled(door.Trouble(Name, err, slog.LevelWarn, "requestState not recorded", c.opts.Attrs...))
	}
}
