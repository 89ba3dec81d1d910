package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// recordTable shows records to people, one in a row.
type recordTable struct {
	w    *tabwriter.Writer
	wide bool
	now  time.Time
	rows int
	// held is the first held record.
	held *semel.Record
}

func newRecordTable(w io.Writer, wide bool) *recordTable {
	t := &recordTable{w: newTable(w), wide: wide, now: time.Now()}
	head := "AGE\tSTATE\tOPERATION\tKEY\tPRINCIPAL\tWHY"
	if wide {
		head = "CREATED\tAGE\tSTATE\tATTEMPT\tOPERATION\tKEY\tTENANT\tPRINCIPAL\tSCOPE\tATTRIBUTES\tRECORD\tWHY"
	}
	fmt.Fprintln(t.w, head)
	return t
}

// Columns are cut off at these widths, unless the table is wide.
const (
	shortPrincipal = 18
	shortWhy       = 48
)

func (t *recordTable) row(rec *semel.Record) {
	t.rows++
	if rec.Held && t.held == nil {
		t.held = rec
	}
	age, id, owner := ageOf(t.now.Sub(rec.CreatedAt.Time())), &rec.ID, wire.OwnerOf(&rec.ID)
	if t.wide {
		fmt.Fprintf(t.w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", when(rec.CreatedAt), age, stateOf(rec), rec.Attempt,
			printable(id.Operation), printable(id.Key), printable(owner.Tenant), printable(owner.Principal), printable(owner.Scope), attributesOf(rec), id.Encode(), printable(whyOf(rec)))
		return
	}
	fmt.Fprintf(t.w, "%s\t%s\t%s\t%s\t%s\t%s\n", age, stateOf(rec),
		printable(id.Operation), printable(id.Key), short(owner.Principal, shortPrincipal), short(whyOf(rec), shortWhy))
}

// footer says how to settle a record, if a row was of a held one.
func (t *recordTable) footer(w io.Writer, src *recordSource) {
	if t.held == nil {
		return
	}
	name, how := src.flags()+" "+t.held.ID.Encode(), "--outcome completed|rejected|failed|aborted"
	if effect, open := verdict.OpenEffect(t.held); open { // no outcome is accepted before its result
		effect = strings.ReplaceAll(printable(effect), "'", `'\''`)
		how = fmt.Sprintf("--effect '%s=confirmed:JSON' or '%[1]s=refuted'", effect)
	}
	fmt.Fprintf(w, "\nLook at one: semel records get%s\nSettle it:   semel records settle%[1]s %s --reason '...'\n", name, how)
}

// whyOf says why a record is in its state, if a reason is recorded, or what became of its first
// message that isn't delivered, or of the last one.
func whyOf(rec *semel.Record) string {
	switch {
	case rec.Held:
		return rec.HeldReason
	case rec.Settled != nil:
		return printable(verdict.Decided(rec.Disposition, rec.Failure, rec.Settled))
	case rec.Failure != nil:
		return strings.TrimPrefix(because(rec.Failure), ": ")
	case len(rec.Outbox) == 0:
		return ""
	}
	i := slices.IndexFunc(rec.Outbox, func(m semel.Message) bool { return m.State != store.MessageDelivered })
	m := &rec.Outbox[max(i, 0)]
	return "message " + printable(m.Name) + " " + string(m.State) + because(m.Failure)
}

// attributesOf are the attributes of a call on one line.
func attributesOf(rec *semel.Record) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(rec.Attributes)) {
		parts = append(parts, name+"="+rec.Attributes[name])
	}
	return printable(strings.Join(parts, " "))
}

// short is printable, cut off.
func short(s string, most int) string {
	if s = printable(s); utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// ageOf is a duration in its largest unit.
func ageOf(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.Itoa(int(max(d, 0)/time.Millisecond)) + "ms"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d"
}
