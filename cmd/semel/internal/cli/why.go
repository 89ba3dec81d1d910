package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// story is the history of one call, with the calls that look like retries of it.
type story struct {
	Record  recordLine `json:"record"`
	FoundBy []string   `json:"found_by"`
	// SamePayload are other calls of the operation and tenant with the same payload.
	SamePayload []recordLine `json:"same_payload"`
	More        bool         `json:"same_payload_more"`
}

func newWhy(from *recordsFrom) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why NAME",
		Short: "Show what happened to a call: was it executed twice, and who got what?",
		Long: `Show the history of a call on one screen: what happened when, what its duplicates got
and a retry gets, the recorded answer, and which other calls of its operation had the
same payload under another key. Those ran, too: if a client makes a new key for a retry,
it pays twice.

Name the call ` + recordNames + valueToo + `.
If several calls have the name, a sentence counts them, and you see each of them.
Services count duplicates over all nodes; the counts are a few seconds late.

The JSON is a list with record, found_by, same_payload (a list of records, at most
` + fmt.Sprint(maxNamesakes) + `) and same_payload_more. The first record has the members that 'semel records get'
prints, the others lack decisions and verdict.

` + recordsLong,
		Example: `  semel why order-1
  semel why order=9911
  semel why --context prod urn:semel:call:DW9yZGVyLTE`,
		Args: oneArg("which call? Give its key, or any other name that it has"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return from.look(cmd, func(ctx context.Context, recs client.Records) error {
				return from.tell(ctx, cmd, recs, args[0])
			})
		},
	}
	from.source.add(cmd.Flags())
	return jsonFlag(cmd)
}

// tell tells the histories of all calls with a name, newest first.
func (from *recordsFrom) tell(ctx context.Context, cmd *cobra.Command, recs client.Records, text string) error {
	all, err := find(ctx, recs, text, true)
	if err != nil {
		return err
	}
	stories, out := []story{}, cmd.OutOrStdout()
	for i := range all.Found[:min(len(all.Found), maxNamesakes)] {
		s, err := storyOf(ctx, recs, &all.Found[i])
		if err != nil {
			return err
		}
		stories = append(stories, s)
	}
	if asJSON(cmd) {
		return printJSON(out, stories)
	}
	if len(all.Found) > 1 {
		fmt.Fprintf(out, "%s\n", printable(all.Verdict))
	}
	for i := range stories {
		if len(all.Found) > 1 {
			fmt.Fprintln(out)
		}
		if err := stories[i].print(out, &from.source); err != nil {
			return err
		}
	}
	if _, more := all.Newest(maxNamesakes); more {
		fmt.Fprintf(cmd.ErrOrStderr(), "Other calls may have that name: every name of %d records was compared, back to %s. List all: semel records list%s %s\n", all.Records, when(all.BackTo), from.source.flags(), shellWord(text))
	}
	return nil
}

// judge adds what a service or a store says about the record: its deliveries, and the verdict.
func (line *recordLine) judge(ctx context.Context, recs client.Records) error {
	if service, ok := recs.(interface {
		Shown(ctx context.Context, id semel.ID) (wire.Record, error)
	}); ok {
		v, err := service.Shown(ctx, line.of.ID)
		if err != nil && !errors.Is(err, semel.ErrNotFound) { // it may have been purged meanwhile
			return err
		}
		line.Decisions, line.Verdict = v.Decisions, v.Verdict
	}
	if line.Verdict == nil { // an older service, or one whose store gives no time
		line.Verdict = new(verdictOf(line.of))
	}
	return nil
}

func storyOf(ctx context.Context, recs client.Records, found *lookup.Found) (s story, err error) {
	rec := &found.Record
	s = story{Record: lineOf(rec), FoundBy: found.By, SamePayload: []recordLine{}}
	if err := s.Record.judge(ctx, recs); err != nil {
		return s, err
	}
	if rec.Fingerprint.IsZero() {
		return s, nil
	}
	same, more, err := lookup.Some(ctx, recs, store.Query{Tenant: &rec.ID.Tenant, Operation: rec.ID.Operation, Fingerprint: rec.Fingerprint}, maxNamesakes)
	s.More = more
	for i := range same {
		if same[i].ID != rec.ID {
			s.SamePayload = append(s.SamePayload, lineOf(&same[i]))
		}
	}
	return s, err
}

// print shows the history to people.
func (s *story) print(out io.Writer, src *recordSource) error {
	rec := s.Record.of
	id := &rec.ID
	fmt.Fprintf(out, "%s, key %s, of %s in the tenant %s: %s\n\n", printable(id.Operation), printable(id.Key), short(rec.Principal, shortPrincipal), printable(id.Tenant), printable(s.Record.Verdict.Says))
	w := newTable(out)
	for _, at := range timeline(rec) {
		fmt.Fprintf(w, "  %s\t%s\n", when(at.at), at.what)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	l := labels{w, "  "}
	l.text("found by", strings.Join(s.FoundBy, ", "))
	l.line("record", "%s", id.Encode())
	l.line("in logs", "%s", printable(id.String()))
	l.text("scope", wire.OwnerOf(id).Scope)
	if s.Record.Decisions != nil {
		// nodes may not have written newer counts yet
		l.line("deliveries", "%s, counted up to %s", counted(s.Record.Decisions), when(store.InstantOf(time.Now().Add(-behind.Pause))))
	}
	if n := s.Record.Decisions[semel.Conflict]; n > 0 {
		in := ""
		if places := s.Record.Verdict.Differ; len(places) > 0 {
			in = ", in " + printable(strings.Join(places, ", "))
		}
		l.line("conflicts", "%d asked for something else%s", n, in)
	}
	l.text("a retry", s.Record.Verdict.Retry)
	printAnswer(l, rec)
	if err := w.Flush(); err != nil {
		return err
	}
	if err := s.printSame(out); err != nil {
		return err
	}
	s.printNext(out, src)
	return nil
}

// printNext lists the commands that make sense now, ready to copy.
func (s *story) printNext(out io.Writer, src *recordSource) {
	rec := s.Record.of
	where := src.flags() + " " + rec.ID.Encode()
	var lines [][2]string
	add := func(why, command string) { lines = append(lines, [2]string{why, command}) }
	for _, advice := range s.Record.Verdict.Advice {
		switch advice {
		case verdict.SettleEffects:
			effect, _ := verdict.OpenEffect(rec)
			add("ask the provider about "+printable(effect)+", and record the answer", "semel records settle"+where+" --effect "+shellWord(effect+"=confirmed:JSON")+" --reason WHY   # or "+shellWord(effect+"=refuted"))
		case verdict.Settle:
			add("find out what happened, and record it", "semel records settle"+where+" --outcome completed|rejected|failed|aborted --reason WHY")
		case verdict.Release:
			add("or let it run again, which may repeat its work", "semel records release"+where+" --reason WHY")
		case verdict.Confirm:
			add("ask the person who may decide, and confirm it", "semel records confirm"+where+" --reason WHY")
		case verdict.Wait:
			add("see how it stands later", "semel why"+where)
		case verdict.ReplayMessage:
			for i := range rec.Outbox {
				if m := &rec.Outbox[i]; m.State == store.MessageParked {
					add("send message "+printable(m.Name)+" again", "semel messages replay"+src.flags()+" "+m.ID+" --reason WHY")
				}
			}
		}
	}
	if s.More {
		add("all calls with this payload", "semel records list"+src.flags()+" fingerprint:"+rec.Fingerprint.String())
	}
	if len(lines) > 0 {
		fmt.Fprintln(out, "\nWhat to do next:")
	}
	for _, l := range lines {
		fmt.Fprintf(out, "  %s:\n    %s\n", l[0], l[1])
	}
}

// shellWord quotes a word for the shell, if it needs that.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(printable(s), "'", `'\''`) + "'"
}

// printSame lists other calls with the same payload.
func (s *story) printSame(out io.Writer) error {
	text := "The same payload came under other keys, each a call of its own:"
	switch {
	case s.Record.of.Fingerprint.IsZero():
		text = "Payloads of this operation aren't compared, so others with the same one can't be found."
	case len(s.SamePayload) == 0:
		text = "No other call of this operation and tenant that is still kept has its fingerprint."
	}
	w := newTable(out)
	fmt.Fprintln(w, "\n"+text)
	for i := range s.SamePayload {
		other := s.SamePayload[i].of
		fmt.Fprintf(w, "  %s\tkey %s\t%s\tof %s\n", when(other.CreatedAt), printable(other.ID.Key), verdictOf(other).State.Words(), short(other.Principal, shortPrincipal))
	}
	return w.Flush()
}

// verdictOf is the verdict on a call from its record alone.
func verdictOf(rec *semel.Record) verdict.Verdict {
	return verdict.Of(&verdict.Facts{Record: rec, Now: store.InstantOf(time.Now())})
}

// saidBy names who settled something, and why.
func saidBy(s *store.Settled) string { return shown(verdict.SettledBy(s)) }

func because(f *store.Failure) string { return shown(verdict.Because(f)) }

// shown is printable, but nothing of nothing.
func shown(text string) string {
	if text == "" {
		return ""
	}
	return printable(text)
}

// ended says how an attempt ended, and who settled it.
func ended(d store.Disposition, s *store.Settled, f *store.Failure) string {
	if s == nil {
		return "ended: " + d.String() + because(f)
	}
	return "was " + printable(verdict.Decided(d, f, s))
}

// counted lists the decisions on a call's deliveries.
func counted(decisions map[semel.Decision]int) string {
	var parts []string
	for _, d := range slices.Sorted(maps.Keys(decisions)) {
		parts = append(parts, fmt.Sprintf("%d %s", decisions[d], d))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// moment is one line of a timeline.
type moment struct {
	at   store.Instant
	what string
}

// timeline lists the moments that a record has, oldest first.
func timeline(rec *semel.Record) []moment {
	var all []moment
	add := func(at store.Instant, format string, args ...any) {
		if at != 0 {
			all = append(all, moment{at, fmt.Sprintf(format, args...)})
		}
	}
	for i := range rec.Earlier {
		at := &rec.Earlier[i]
		add(at.StartedAt, "attempt %d began, by %s", at.Number, printable(at.Holder))
		add(at.EndedAt, "attempt %d %s", at.Number, ended(at.Disposition, at.Settled, at.Failure))
	}
	add(rec.StartedAt, "attempt %d began, by %s", rec.Attempt, printable(rec.Holder))
	for i := range rec.Effects {
		ef := &rec.Effects[i]
		add(ef.StartedAt, "effect %s was begun", printable(ef.Name))
		add(ef.SettledAt, "effect %s was %s%s%s", printable(ef.Name), ef.State, saidBy(ef.Settled), because(ef.Failure))
	}
	if rec.Held {
		add(rec.UpdatedAt, "held: %s", printable(rec.HeldReason))
	}
	add(rec.EndedAt, "attempt %d %s", rec.Attempt, ended(rec.Disposition, rec.Settled, rec.Failure))
	for i := range rec.Outbox {
		m := &rec.Outbox[i]
		add(m.CreatedAt, "message %s to %s: %s%s%s", printable(m.Name), printable(m.Destination), m.State, verdict.Tried(m), because(m.Failure))
	}
	if c := rec.Compensation; c != nil {
		add(max(c.StartedAt, c.SettledAt), "compensation %s: %s", c.State, printable(c.Reason))
	}
	if rec.State == semel.Processing && !rec.Held {
		if verdictOf(rec).State == verdict.Silent {
			add(rec.LeaseUntil, "its lease ended, and its holder was silent")
		} else {
			add(rec.LeaseUntil, "until then its holder may be silent")
		}
	}
	add(rec.ExpiresAt, "until then its duplicates are recognised")
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return all
}
