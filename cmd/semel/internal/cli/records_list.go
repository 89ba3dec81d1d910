package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// printable makes text that others chose safe for a terminal. An empty one becomes a dash, so
// that no column is empty.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	for _, r := range s {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return strconv.QuoteToGraphic(s)
		}
	}
	return s
}

// qualifiers is the help on queries.
const qualifiers = query.Qualifiers + `

Quote what the shell would interpret: 'created<1h' 'key:pay*' '(a OR b)'. Inside, put
double quotes around a value with spaces: 'key:"order 1"'.`

const recordsListLong = `List the records that match all of these qualifiers, newest first:
` + qualifiers + `

--only stuck lists what waits for somebody: held, of a silent holder, with a parked
message, or not undone; repeated what was or may have been done more than once, under one
key or with the same payload under several, which holds all that it compares in memory;
restored what ran since the store was restored from a backup. --only and --node go through
all that the qualifiers match.

The table shows each record's age, and why it is in its state, or what became of its
messages. --wide adds the rest, and RECORD, the name that other commands take. If a
record is held, standard error says how to settle it; if there are more than --limit,
it has the cursor for the next ones.

The JSON is one object per line, with the members that 'semel records get' prints, but for
decisions. Its verdict doesn't know of records that were purged before, unless you list
the calls of one NAME.`

func newRecordsList(from *recordsFrom) *cobra.Command {
	var wide bool
	var only lookup.Only
	var all bool
	var limit int
	var cursor string
	cmd := &cobra.Command{
		Use:               "list [QUALIFIER...]",
		ValidArgsFunction: completeQualifiers,
		Short:             "List records, newest first",
		Long:              recordsListLong,
		Example: `  semel records list held
  semel records list operation:payments.charge state:failed after:2026-01-01
  semel records list 'order=99*' 'created<1h' -state:completed
  semel records list 'operation:payments.charge (held OR state:rejected)'
  semel records list --only stuck --wide
  semel records list --node node-2 after:13:37 before:13:38
  semel records list --context prod --all --json held`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := parseQuery(args)
			switch {
			case err != nil:
				return err
			case limit < 1:
				return usage("--limit is %d; it must be at least 1", limit)
			case all && cmd.Flags().Changed("limit"):
				return usage("--all and --limit exclude each other: give one of them")
			case only.List != "" && !slices.Contains(lookup.Lists, only.List):
				return usage("--only is %q, not %s", only.List, strings.Join(lookup.Lists, ", "))
			}
			if all || only.List == lookup.Repeated { // which needs to have seen all
				limit = 0
			}
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				only.Lister = lookup.Judging(recs)
				if len(args) == 1 && q.Tenant == nil && reflect.DeepEqual(q, lookup.Named(args[0])) { // nothing but a name
					only.Lister = pagesOf(recs, args[0]).List(args[0])
				}
				q.Cursor = cursor
				return listRecords(ctx, cmd, &only, q, limit, wide, &from.source)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&limit, "limit", store.DefaultSearchLimit, "how many to list at most")
	flags.BoolVar(&all, "all", false, "list all of them")
	flags.BoolVar(&wide, "wide", false, "show every column in full")
	flags.StringVar(&only.List, "only", "", "only what is `stuck`, repeated or restored, as above")
	flags.StringVar(&only.Node, "node", "", "only what this `node` began, by its name or its host's")
	flags.StringVar(&cursor, "cursor", "", "continue at this `place`, with the same qualifiers")
	return jsonFlag(cmd)
}

// listRecords prints what a search finds, up to limit, and how to continue.
func listRecords(ctx context.Context, cmd *cobra.Command, recs lookup.Lister, q store.Query, limit int, wide bool, src *recordSource) error {
	enc, table := newEncoder(cmd.OutOrStdout()), newRecordTable(cmd.OutOrStdout(), wide)
	next, err := lookup.EachJudged(ctx, recs, q, limit, warner(cmd), func(rec *semel.Record, v *verdict.Verdict) error {
		if asJSON(cmd) {
			line := lineOf(rec)
			line.Verdict = v
			return enc.Encode(line)
		}
		table.row(rec)
		return nil
	})
	if !asJSON(cmd) && (err == nil || table.rows > 0) {
		err = errors.Join(err, table.w.Flush())
		table.footer(cmd.ErrOrStderr(), src)
	}
	if next != "" && err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "There may be more: --cursor %s\n", next)
	}
	return err
}

// warner prints errors that don't end the command.
func warner(cmd *cobra.Command) func(error) {
	return func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), "semel:", err) }
}
