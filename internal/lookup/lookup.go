// Package lookup finds calls by any name that anybody has for them: a key, a reference, a
// delivery's id, an order number. It looks for all kinds of names at once, so that no call
// hides another, and says which names matched. Everything that looks up calls for people does
// it here: the service's API, and with it the terminal and the dashboard.
package lookup

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/tally"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// Finder finds calls.
type Finder struct {
	// Records reads an engine's records. Required.
	Records tally.Reader
	// Tenant limits the search to one tenant; nil searches all.
	Tenant *string
	// Attributes are the names of attributes that the service's calls have, besides
	// [store.IDAttributes]. Stores have an index of attributes by name and value; to find
	// others, a search reads records.
	Attributes []string
	// Log has the ids of all deliveries, by tenant: a search looks in it for Tenant, or for
	// LogTenant without one. Nil: the search ends with the records.
	Log       *evidence.Log
	LogTenant string
	// Facts gathers the facts for the verdict, for records in order; nil or no facts: the
	// verdict is about the records alone.
	Facts func([]store.Record) []verdict.Facts
}

// Found is a call, with all of its names that match the text, and the verdict on it.
type Found struct {
	Record  store.Record
	By      []string
	Verdict *verdict.Verdict
}

// Answer is a page of calls, the newest first. A call may appear again on a later page. Gone
// are calls that only the evidence log knows: their records were purged or have expired.
type Answer struct {
	Found []Found
	Gone  []store.ID
	// Guessed are the attributes, as NAME=VALUE, that have the text for their value in calls which
	// [Pages.All] left out, because whoever asks has to be sure.
	Guessed []string
	// Verdict answers for all calls of the page in one sentence. It is empty until calls are
	// found, or the search ends.
	Verdict string
	Searched
	// Complete reports whether this page and the earlier ones have searched everything. Only
	// then may you say that there is no such call.
	Complete bool
	// Next continues the search; empty at its end.
	Next string
}

// Searched says what a page has searched.
type Searched struct {
	// By has the kinds of names that it searched to the end.
	By []string
	// Records is how many records it compared by all their names, from the newest on, and
	// BackTo is when the oldest of them was created.
	Records int
	BackTo  store.Instant
}

// The phases of a search. All but the last use an index, with at most two pages each; the last
// one compares every record, and so finds what they leave, and names without an index. Every
// other phase runs as a whole, and the search stops between them when a page has cost enough.
const (
	attributes = iota
	keys
	deliveries
	logged
	records
	ended
)

// named says what each phase searches, by its number.
var named = [...]string{"attributes", "keys", "deliveries", "evidence", "records"}

// place is how far a search has got. It is flawed if something before it couldn't be read.
type place struct {
	phase  int
	flawed bool
	cursor string // of the store
}

func (p place) String() string {
	flaw := ""
	if p.flawed {
		flaw = "!"
	}
	return strconv.Itoa(p.phase) + flaw + ":" + p.cursor
}

func parsePlace(text string) (p place, err error) {
	if text == "" {
		return p, nil
	}
	head, cursor, ok := strings.Cut(text, ":")
	number, flawed := strings.CutSuffix(head, "!")
	p = place{flawed: flawed, cursor: cursor}
	p.phase, err = strconv.Atoi(number)
	if !ok || err != nil || p.phase < 0 || p.phase > records || p.String() != text {
		return p, &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this search"}
	}
	return p, nil
}

// search makes one page.
type search struct {
	*Finder
	text   string
	ways   []way
	at     place
	budget paging.Budget
	answer Answer
	seen   map[store.ID]int // the index in answer.Found
}

// Find finds the calls with text as a name, one page from a cursor on, which is the previous
// page's Next, or empty. A page ends when it has cost as much as a page of records may, or has
// enough.
func (f *Finder) Find(ctx context.Context, text, cursor string) (*Answer, error) {
	at, err := parsePlace(cursor)
	if err != nil {
		return nil, err
	}
	s := &search{Finder: f, text: text, ways: ways(text, true), at: at, budget: paging.New(ctx), seen: map[store.ID]int{}}
	if q := &s.ways[0].query; q.Tenant != nil {
		err = s.identity(ctx, store.ID{Tenant: *q.Tenant, Principal: q.Principal, Operation: q.Operation, Key: q.Key})
		s.at.phase = ended
	}
	for err == nil && s.at.phase < ended && (s.at == at || !s.full()) {
		err = s.step(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s.finish(cursor != ""), nil
}

// full reports whether the page ends here.
func (s *search) full() bool {
	return s.budget.Spent || len(s.answer.Found) >= store.DefaultSearchLimit
}

// step takes the search one phase further.
func (s *search) step(ctx context.Context) (err error) {
	whole := true
	switch s.at.phase {
	case attributes:
		whole, err = s.indexed(ctx, slices.Concat(store.IDAttributes, s.Attributes))
	case keys:
		whole, err = s.keyed(ctx)
	case deliveries:
		whole, err = s.delivered(ctx)
	case logged:
		whole, err = s.inLog(ctx)
	case records:
		return s.scan(ctx)
	}
	if whole && err == nil {
		s.answer.By = append(s.answer.By, named[s.at.phase])
	}
	s.at.phase++
	return err
}

// identity finds the only call with the whole identity.
func (s *search) identity(ctx context.Context, id store.ID) error {
	if s.answer.By = []string{byRecord}; s.Tenant != nil && *s.Tenant != id.Tenant {
		return nil
	}
	rec, err := s.Records.Lookup(ctx, id)
	if err == nil {
		s.take(&rec, "")
	} else if errors.Is(err, semel.ErrNotFound) {
		err = nil
	}
	return err
}

// indexed finds what the index of attributes has for some names, and for the name in the text
// if it is NAME=VALUE.
func (s *search) indexed(ctx context.Context, under []string) (whole bool, err error) {
	var list []store.Query
	for _, name := range under {
		list = append(list, store.Query{Attributes: store.Attributes{name: s.text}})
	}
	for i := range s.ways {
		if q := s.ways[i].query; q.Attributes != nil {
			list = append(list, q)
		}
	}
	return s.two(ctx, store.Query{Any: [][]store.Query{list}})
}

// keyed finds what PostgreSQL's other indexes have: keys, and prefixes of attributes.
func (s *search) keyed(ctx context.Context) (whole bool, err error) {
	whole, err = s.two(ctx, store.Query{Key: s.text})
	for i := range s.ways {
		q := s.ways[i].query
		if err != nil || q.AttributePrefixes == nil && (q.Operation == "" || q.Key == "") {
			continue
		}
		var all bool
		all, err = s.two(ctx, q)
		whole = whole && all
	}
	return whole, err
}

// two reads at most two pages of a query: one may end without a record at the key of a sequence.
func (s *search) two(ctx context.Context, q store.Query) (whole bool, err error) {
	for range 2 {
		if q.Cursor, err = s.page(ctx, q); err != nil || q.Cursor == "" {
			return err == nil, err
		}
	}
	return false, nil
}

// page reads a page of a query, and returns its Next.
func (s *search) page(ctx context.Context, q store.Query) (next string, err error) {
	q.Tenant = s.Tenant
	page, err := s.Records.Search(ctx, q)
	if err != nil {
		return "", err
	}
	if len(page.Unreadable) > 0 {
		s.at.flawed = true
	}
	bytes := 1
	for i := range page.Records {
		bytes += len(page.Records[i].Result.Data) + len(page.Records[i].Payload)
		s.take(&page.Records[i], "")
	}
	s.budget.Spend(bytes)
	return page.Next, nil
}

// take adds a record to the page if it has the text as a name, or if another name, which it
// doesn't have itself, led to it.
func (s *search) take(rec *store.Record, other string) {
	by := namesOf(rec, s.text, s.ways)
	i, ok := s.seen[rec.ID]
	if other != "" && len(by) == 0 && !ok {
		by = []string{other}
	}
	if len(by) == 0 || rec.Mark != nil {
		return
	}
	if !ok {
		i = len(s.answer.Found)
		s.seen[rec.ID], s.answer.Found = i, append(s.answer.Found, Found{Record: *rec})
	}
	for _, name := range by {
		if !slices.Contains(s.answer.Found[i].By, name) {
			s.answer.Found[i].By = append(s.answer.Found[i].By, name)
		}
	}
}

// delivered finds calls by the request id of a later delivery.
func (s *search) delivered(ctx context.Context) (whole bool, err error) {
	found, more, err := tally.Find(ctx, s.Records, s.Tenant, s.text, store.DefaultSearchLimit)
	for i := range found {
		s.take(&found[i], byDelivery)
	}
	s.budget.Spend(1)
	return !more, err
}

// scan compares a page of records, from the newest on, by every name.
func (s *search) scan(ctx context.Context) error {
	page, err := s.Records.Search(ctx, store.Query{Tenant: s.Tenant, Limit: store.MaxSearchLimit, Cursor: s.at.cursor})
	if err != nil {
		return err
	}
	first := s.at.cursor == ""
	s.at.flawed = s.at.flawed || len(page.Unreadable) > 0
	under, bytes := map[string]bool{}, 1
	for i := range page.Records {
		rec := &page.Records[i]
		bytes += len(rec.Result.Data) + len(rec.Payload)
		s.take(rec, "")
		for name := range rec.Attributes {
			under[name] = true
		}
		s.answer.Records, s.answer.BackTo = s.answer.Records+1, rec.CreatedAt
	}
	s.budget.Spend(bytes)
	if s.at.cursor = page.Next; page.Next == "" {
		s.at.phase, s.answer.By = ended, append(s.answer.By, named[records])
		return nil
	}
	if !first {
		return nil
	}
	return s.learn(ctx, under)
}

// maxLearned bounds how many attribute names a search tries besides the declared ones: callers
// choose them.
const maxLearned = 32

// learn tries attribute names that the newest records have and nobody declared.
func (s *search) learn(ctx context.Context, under map[string]bool) error {
	maps.DeleteFunc(under, func(name string, _ bool) bool {
		return name == store.AttributeTrace || slices.Contains(s.Attributes, name) || slices.Contains(store.IDAttributes, name)
	})
	all := slices.Sorted(maps.Keys(under))
	if len(all) == 0 {
		return nil
	}
	_, err := s.indexed(ctx, all[:min(len(all), maxLearned)])
	return err
}

// finish completes the answer.
func (s *search) finish(continued bool) *Answer {
	a := &s.answer
	if s.at.phase < ended {
		a.Next = s.at.String()
	}
	a.Complete = a.Next == "" && !s.at.flawed
	slices.SortStableFunc(a.Found, func(x, y Found) int { return cmp.Compare(y.Record.CreatedAt, x.Record.CreatedAt) })
	switch {
	case len(a.Found) > 0:
		a.Verdict = s.verdict(continued || !a.Complete)
	case len(a.Gone) > 0:
		a.Verdict = s.text + ": its record is gone, and the evidence log has its history"
	case a.Complete && !continued:
		a.Verdict = s.verdict(false)
	}
	return a
}

// verdict answers in one sentence for all calls found.
func (s *search) verdict(more bool) string {
	var records []store.Record
	for i := range slices.Backward(s.answer.Found) {
		records = append(records, s.answer.Found[i].Record)
	}
	var calls []verdict.Facts
	if s.Facts != nil {
		calls = s.Facts(records)
	}
	if calls == nil {
		for i := range records {
			calls = append(calls, verdict.Facts{Record: &records[i], Now: store.InstantOf(time.Now())})
		}
	}
	for i := range calls {
		calls[i].Said = new(verdict.Of(&calls[i]))
		s.answer.Found[len(calls)-1-i].Verdict = calls[i].Said
	}
	return verdict.Together(s.text, calls, more)
}
