package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// lister prints records as they are found.
type lister struct {
	table *recordTable
	json  *json.Encoder
}

// newLister prints to w; what is in front of each row has a column of its own.
func newLister(w io.Writer, asJSON bool, front string, wide bool) *lister {
	if asJSON {
		return &lister{json: newEncoder(w)}
	}
	return &lister{table: newRecordTable(w, front, wide)}
}

// printable shows a text that others chose: a terminal must not obey it, and a
// column must not be empty.
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

// qualifiers tells how a query is written on a command line.
const qualifiers = query.Qualifiers + `

Put quotes around what a shell would read as its own: 'created<1h' 'key:pay*' '(a OR b)'.
A value with spaces is put in double quotes within them: 'key:"order 1"'.`

func newRecordsList(from *recordsFrom) *cobra.Command {
	var asJSON, all, wide bool
	var limit int
	var cursor string
	cmd := &cobra.Command{
		Use:               "list [QUALIFIER...]",
		ValidArgsFunction: from.completeQualifiers,
		Short:             "List records, the newest first",
		Long: `List records, the newest first. All qualifiers must apply:
` + qualifiers + `

The table has the age of each record, and why it is in its state; --wide adds the
rest, and RECORD, which names it for the other commands. If one is held, standard
error says how to settle it.

If there are more records than --limit, the cursor for the next ones is told on
standard error.

The JSON is one object per line, with the members that 'semel records get' prints.`,
		Example: `  semel records list held
  semel records list operation:payments.charge state:failed after:2026-01-01
  semel records list 'order=99*' 'created<1h' -state:completed
  semel records list 'operation:payments.charge (held OR state:rejected)'
  semel records list --context prod --all --json held`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := parseQuery(args)
			switch {
			case err != nil:
				return err
			case limit < 1:
				return usage("--limit is %d, and at least 1", limit)
			case all && cmd.Flags().Changed("limit"):
				return usage("--all and --limit exclude each other")
			}
			q.Cursor = cursor
			if all {
				limit = 0
			}
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				return listRecords(ctx, cmd, recs, q, limit, newLister(cmd.OutOrStdout(), asJSON, "", wide), &from.source)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&limit, "limit", store.DefaultSearchLimit, "list at most so many")
	flags.BoolVar(&all, "all", false, "list all that there are")
	flags.BoolVar(&wide, "wide", false, "show all columns, and nothing cut off")
	flags.StringVar(&cursor, "cursor", "", "go on at this `place`, with the same qualifiers")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// listRecords prints what a search finds, up to limit, and how to go on.
func listRecords(ctx context.Context, cmd *cobra.Command, recs client.Records, q store.Query, limit int, l *lister, src *recordSource) error {
	next, err := eachFound(ctx, recs, q, limit, warner(cmd), func(rec *semel.Record) error {
		if l.json != nil {
			return l.json.Encode(lineOf(rec))
		}
		l.table.row("", rec)
		return nil
	})
	if l.table != nil && (err == nil || l.table.rows > 0) {
		if ferr := l.table.flush(); err == nil {
			err = ferr
		}
		l.table.footer(cmd.ErrOrStderr(), src)
	}
	if next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "There is more: --cursor %s\n", next)
	}
	return err
}

// eachFound calls f with what a search finds, up to limit; zero is no limit. Next
// goes on after that, also after an error. What can't be read is told to warn.
func eachFound(ctx context.Context, recs query.Searcher, q store.Query, limit int, warn func(error), f func(*semel.Record) error) (next string, err error) {
	for left := limit; ; {
		q.Limit = store.MaxSearchLimit
		if limit > 0 {
			q.Limit = min(left, q.Limit)
		}
		page, err := recs.Search(ctx, q)
		if err != nil {
			return q.Cursor, err
		}
		for _, err := range page.Unreadable {
			warn(err)
		}
		for i := range page.Records {
			if err := f(&page.Records[i]); err != nil {
				return "", err
			}
		}
		left -= len(page.Records)
		if q.Cursor = page.Next; q.Cursor == "" || limit > 0 && left <= 0 {
			return q.Cursor, nil
		}
	}
}

// warner tells people of trouble that does not end the command.
func warner(cmd *cobra.Command) func(error) {
	return func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), "semel:", err) }
}

// recordChange is what semel records watch --json prints.
type recordChange struct {
	// Change is "new", "changed" or "gone".
	Change string `json:"change"`
	recordLine
}

func newRecordsWatch(from *recordsFrom) *cobra.Command {
	var asJSON, wide bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:               "watch [QUALIFIER...]",
		ValidArgsFunction: from.completeQualifiers,
		Short:             "Print records of a service as they come and change",
		Long: `Print what happens to the records that the qualifiers select, until interrupted:
new, changed, or gone, which means purged or no longer selected. The service is
asked for all of them again and again, so use qualifiers that select few. Changes
between two questions are seen as one. The qualifiers are those of list.

The JSON is one object per line, with change and the members that 'semel records get'
prints.`,
		Example: `  semel records watch held`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := parseQuery(args)
			switch {
			case err != nil:
				return err
			case every < 100*time.Millisecond:
				return usage("--interval is %v, and at least 100ms", every)
			}
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				if _, local := recs.(*localRecords); local {
					return usage("watch needs the --url of a service: nothing changes in a directory that no process is using")
				}
				err := watchRecords(ctx, recs, q, every, newLister(cmd.OutOrStdout(), asJSON, "CHANGE\t", wide))
				if ctx.Err() != nil {
					return nil // to be interrupted is how it ends
				}
				return err
			})
		},
	}
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two questions")
	cmd.Flags().BoolVar(&wide, "wide", false, "show all columns, and nothing cut off")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// watchRecords prints changes until ctx is done or a search fails.
func watchRecords(ctx context.Context, recs client.Records, q store.Query, every time.Duration, l *lister) error {
	show := func(change string, rec *semel.Record) error {
		if l.json != nil {
			return l.json.Encode(recordChange{change, lineOf(rec)})
		}
		l.table.now = time.Now()
		l.table.row(change+"\t", rec)
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	type state struct {
		rec   semel.Record
		shown [sha256.Size]byte
	}
	var known map[semel.ID]state
	for {
		now := map[semel.ID]state{}
		_, err := eachFound(ctx, recs, q, 0, func(error) {}, func(rec *semel.Record) error {
			old, seen := known[rec.ID]
			text, err := json.Marshal(wire.RecordOf(rec)) // a service does not tell the revision
			if err != nil {
				return err
			}
			kept := state{*rec, sha256.Sum256(text)}
			kept.rec.Result, kept.rec.Effects, kept.rec.Earlier = semel.Result{}, nil, nil // it is many
			now[rec.ID] = kept
			switch {
			case known == nil || seen && old.shown == kept.shown:
				return nil
			case seen:
				return show("changed", rec)
			}
			return show("new", rec)
		})
		if err != nil {
			return err
		}
		for id, last := range known {
			if _, still := now[id]; !still {
				if err := show("gone", &last.rec); err != nil {
					return err
				}
			}
		}
		known = now
		if l.table != nil {
			if err := l.table.flush(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
