package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/semel/internal/screen"
	"github.com/semelhq/semel/cmd/semel/internal/tail"
	"github.com/semelhq/semel/internal/service/query"
)

// whyTimeout bounds how long the screen of semel tail waits for the story of a call.
const whyTimeout = 15 * time.Second

// tailLine is what semel tail --json prints of an event.
type tailLine struct {
	ID        string          `json:"id"`
	Event     string          `json:"event"`
	Principal string          `json:"principal,omitempty"`
	Key       string          `json:"idempotency_key,omitempty"`
	Data      json.RawMessage `json:"data"`
}

func newTail(from *recordsFrom) *cobra.Command {
	var interactively, recent, asJSON bool
	cmd := &cobra.Command{
		Use:   "tail [QUALIFIER...]",
		Short: "Follow what a node decides as it happens; with -i on a screen",
		Long: `Follow what a node decides as it happens: what deliveries got, how attempts ended,
leases that were lost, purges. The qualifiers select events as they select records:
tenant:, principal:, operation:, key:, call:, state:, held and any name of a call, with OR,
minus and parentheses; and decision:D is for events alone, where D is one of
` + wrapped(tail.Decisions) + `.
What events don't have selects none of them: attributes, fingerprints, times.

Without -i each event is a line, until interrupted; --recent begins with those that the
node still has. A node that is away is asked again after a while.

With -i the events are on a screen, the node's last ones too. Keys: / types a filter that
counts with each letter, Enter keeps it and Esc takes it back; p pauses; j and k, or the
arrows, select an event; Enter tells why, as 'semel why' does of its record, and Esc goes
back; q quits. The last ` + fmt.Sprint(tail.Kept) + ` events are kept. NO_COLOR leaves out colors.

Each node has its own events: name one by --url.

The JSON is one object per line, with id, event, principal, idempotency_key, and data as
the API describes it for GET /v1/decisions.

` + runningLong,
		Example: `  semel tail
  semel tail -i --context prod decision:conflict
  semel tail --json operation:payments.* -decision:execute > events.jsonl`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			return from.completeEvents(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.TrimSpace(strings.Join(args, " "))
			filter, err := tail.ParseFilter(text)
			switch {
			case err != nil:
				return usage("%w", err)
			case interactively && asJSON:
				return usage("--interactive and --json exclude each other")
			case interactively && !interactive(cmd.InOrStdin(), cmd.OutOrStdout()):
				return usage("--interactive needs a terminal")
			}
			at, tokenFile, err := from.source.running(cmd)
			if err != nil {
				return err
			}
			service, err := from.source.ask(at, tokenFile)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			// A node that goes away is asked again; one that was never there is told of.
			if err := answers(ctx, at, tokenFile); err != nil {
				return exitWith(err)
			}
			last := ""
			if recent || interactively {
				last = "0"
			}
			next := tail.Follow(ctx, func(ctx context.Context, id string) iter.Seq2[client.Event, error] {
				return service.Watch(ctx, id, client.WatchFilter{})
			}, last)
			if !interactively {
				fmt.Fprintf(cmd.ErrOrStderr(), "semel: following what %s decides; Control-C ends it\n", printable(at))
				return exitWith(printEvents(cmd, next, &filter, asJSON))
			}
			m, err := tail.New(tail.Options{
				Next: next, Service: at, Filter: text, Ink: screen.InkFor(os.Getenv),
				Why: func(record string) (string, error) { return from.tellWhy(ctx, service, record) },
			})
			if err == nil {
				_, err = screen.Run(ctx, m, cmd.InOrStdin(), cmd.OutOrStdout())
			}
			return exitWith(errors.Join(err, m.Err()))
		},
	}
	flags := cmd.Flags()
	from.source.add(flags)
	flags.BoolVarP(&interactively, "interactive", "i", false, "show the events on a screen")
	flags.BoolVar(&recent, "recent", false, "begin with the events that the node still has")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// answers asks a service whether it is there.
func answers(ctx context.Context, at, tokenFile string) error {
	service, err := asked(at, tokenFile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	_, err = service.Ready(ctx)
	return err
}

// printEvents prints what comes, one event a line.
func printEvents(cmd *cobra.Command, next func() (tail.Batch, bool), filter *tail.Filter, asJSON bool) error {
	out := cmd.OutOrStdout()
	enc := newEncoder(out)
	ink := screen.Ink{}
	if isTerminal(out) {
		ink = screen.InkFor(os.Getenv)
	}
	for {
		b, more := next()
		if !more {
			return nil // to be interrupted is how it ends
		}
		for i := range b.Events {
			e := &b.Events[i]
			if !filter.Matches(e) {
				continue
			}
			var err error
			if asJSON {
				err = enc.Encode(tailLine{e.Seq, e.Kind, e.ID.Principal, e.ID.Key, e.Data})
			} else {
				_, err = fmt.Fprintln(out, e.Line(ink, 0))
			}
			if err != nil {
				return err
			}
		}
		if b.Err != nil {
			return b.Err
		}
		if b.Lost != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "semel: %s; asking again\n", b.Lost)
		}
	}
}

// tellWhy is what semel why prints of a record.
func (from *recordsFrom) tellWhy(ctx context.Context, recs client.Records, record string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	stories, _, err := storiesOf(ctx, recs, record)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	for i := range stories {
		if err := stories[i].print(&b, &from.source); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// completeEvents completes qualifiers of events.
func (from *recordsFrom) completeEvents(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	bare := strings.TrimPrefix(strings.TrimPrefix(word, " "), "-")
	minus := strings.TrimSuffix(strings.TrimPrefix(word, " "), bare)
	if value, ok := strings.CutPrefix(bare, "decision:"); ok {
		var found []string
		for _, d := range tail.Decisions {
			if strings.HasPrefix(d, value) {
				found = append(found, minus+"decision:"+d)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
	found, directive := from.completeQualifiers(cmd, args, word)
	if !strings.Contains(bare, ":") && strings.HasPrefix("decision:", bare) {
		found = append(found, minus+"decision:")
	}
	return found, directive
}

// excludes reports whether an argument is a qualifier behind a minus, and not a flag.
func excludes(arg string) bool { return query.Excludes(arg) || strings.HasPrefix(arg, "-decision:") }

// wrapped lists words on lines of a help text.
func wrapped(words []string) string {
	return strings.Join(screen.Flow(words, 88), "\n")
}
