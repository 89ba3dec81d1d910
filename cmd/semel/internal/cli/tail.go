package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/semel/internal/tail"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/internal/wire"
)

// tailLine is what semel tail --json prints of an event.
type tailLine struct {
	ID        string          `json:"id"`
	Event     string          `json:"event"`
	Principal string          `json:"principal,omitempty"`
	Scope     string          `json:"scope,omitempty"`
	Key       string          `json:"idempotency_key,omitempty"`
	Data      json.RawMessage `json:"data"`
}

func newTail(from *recordsFrom) *cobra.Command {
	var recent bool
	cmd := &cobra.Command{
		Use:   "tail [QUALIFIER...]",
		Short: "Follow what a node decides as it happens",
		Long: `Follow what a node decides as it happens: the decision of each delivery, how attempts
end, lost leases and purges. The qualifiers select events like records:
tenant:, principal:, operation:, key:, call:, state:, held and any name of a call, with OR,
minus and parentheses. Only events have decision:D, where D is one of
` + wrapped + `.
You can't select events by attribute, fingerprint or time of creation.

Each event is a line, until you interrupt the command; --recent begins with the events
that the node still has. If the node goes away, the command keeps trying.

Each node has its own events: name one with --url.

The JSON is one object per line, with id, event, principal, scope, idempotency_key, and
data as the API describes it for GET /v1/decisions.

` + runningLong,
		Example: `  semel tail
  semel tail --context prod decision:conflict
  semel tail --json operation:payments.* -decision:execute > events.jsonl`,
		ValidArgsFunction: completeEvents,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := tail.ParseFilter(strings.Join(args, " "))
			if err != nil {
				return usage("%w", err)
			}
			node, tokenFile, err := from.source.running(cmd)
			if err != nil {
				return err
			}
			// The stream survives a node that goes away later, but not one that was never there.
			ctx, cancel := context.WithTimeout(cmd.Context(), topTimeout)
			defer cancel()
			if _, err := node.Ready(ctx); err != nil {
				return exitWith(err)
			}
			service, err := from.source.ask(node.URL(), tokenFile)
			if err != nil {
				return err
			}
			last := map[bool]string{true: "0"}[recent]
			fmt.Fprintf(cmd.ErrOrStderr(), "semel: following what %s decides; Control-C ends it\n", printable(node.URL()))
			return exitWith(printEvents(cmd, service, last, &filter))
		},
	}
	flags := cmd.Flags()
	from.source.add(flags)
	flags.BoolVar(&recent, "recent", false, "begin with the events that the node still has")
	return jsonFlag(cmd)
}

// printEvents prints one event a line.
func printEvents(cmd *cobra.Command, service *client.Client, last string, filter *tail.Filter) error {
	out := cmd.OutOrStdout()
	enc := newEncoder(out)
	watch := func(ctx context.Context, id string) iter.Seq2[client.Event, error] {
		return service.Watch(ctx, id, client.WatchFilter{})
	}
	lost := func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "semel: %s; asking again\n", err) }
	for e, err := range tail.Follow(cmd.Context(), watch, last, lost) {
		switch {
		case err != nil:
			return err
		case !filter.Matches(e):
			continue
		case asJSON(cmd):
			owner := wire.OwnerOf(&e.ID)
			err = enc.Encode(tailLine{e.Seq, e.Kind, owner.Principal, owner.Scope, e.ID.Key, e.Data})
		default:
			_, err = fmt.Fprintln(out, e.Line())
		}
		if err != nil {
			return err
		}
	}
	return nil // interrupted, as it should end
}

// excludes reports whether an argument is a qualifier behind a minus, and not a flag.
func excludes(arg string) bool { return query.Excludes(arg) || strings.HasPrefix(arg, "-decision:") }

// wrapped is the list of decisions for a help text, on two lines.
var wrapped = strings.Join(tail.Decisions[:6], "  ") + "\n" + strings.Join(tail.Decisions[6:], "  ")
