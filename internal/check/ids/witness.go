package ids

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/semelhq/semel/internal/check"
)

// artifact has the members of the evidence of one decision.
type artifact map[string]any

// witnessed judges the evidence of a decision about a command, which may come late.
func (k *kit) witnessed(ctx context.Context, id, commandID, decision string, fault func(artifact) string) {
	if k.Flag("evidence") == "" {
		k.Unseen(id, "say by --evidence where an auditor reads the evidence of a command")
		return
	}
	address := strings.ReplaceAll(k.Flag("evidence"), "{command_id}", url.QueryEscape(commandID))
	saw := check.Until(ctx, k.Bench, func() (string, bool) {
		got := k.Get(ctx, address)
		if got.Err != nil || got.Status != http.StatusOK {
			k.Unseen(id, fmt.Sprintf("%s gets %s", address, got))
			return "can't be read", true
		}
		for _, e := range artifacts(got.Body) {
			if e["decision"] == decision {
				return fault(e), true
			}
		}
		return "isn't there", false
	})
	k.Holds(id, saw == "", "the evidence of %s %s", decision, saw)
}

// artifacts reads a list, or an object that has one as entries. The document names members, and
// no form: so they may be at any depth of an artifact.
func artifacts(body string) (list []artifact) {
	var whole struct{ Entries []any }
	if json.Unmarshal([]byte(body), &whole) != nil && json.Unmarshal([]byte(body), &whole.Entries) != nil {
		return nil
	}
	for _, entry := range whole.Entries {
		e := artifact{}
		e.add(entry)
		if sum, ok := e["outcome_sha256"]; ok {
			e["outcome_ref"] = fmt.Sprint("sha256:", sum)
		}
		list = append(list, e)
	}
	return list
}

// add adds the members of an object, and of the objects in it.
func (e artifact) add(v any) {
	object, _ := v.(map[string]any)
	for name, value := range object {
		e[name] = value
		e.add(value)
	}
}
