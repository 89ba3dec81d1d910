package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/terms"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// entry is an entry in an index of a shard.
type entry struct {
	shard  *shard
	member string // the digest of a record, unless another program has added the entry
	score  int64
	term   string // in the index of attributes
}

func (en *entry) record() string { return en.shard.records + en.member }

// ours reports whether the entry can belong to a record.
func (en *entry) ours() bool { return len(en.member) == digestLen }

// compare orders the entries of an index; it is negative if a comes before b.
func compare(a, b entry) int {
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.member, b.member))
}

// index is one of the indexes, read from the lowest score on.
type index struct {
	key   func(*shard) string
	until string   // the highest score to read
	terms []string // terms to read in the index of attributes; an entry there is the text after one
}

// byCreation reads the newest records first.
var byCreation = index{key: func(sh *shard) string { return sh.created }, until: "+inf"}

func byDue(until store.Instant) index {
	return index{key: func(sh *shard) string { return sh.due }, until: strconv.FormatInt(micros(until), 10)}
}

// byAttributes reads the newest records that have one of some terms first.
func byAttributes(list []terms.Term) index {
	ix := index{key: func(sh *shard) string { return sh.attributes }}
	for i := range list {
		ix.terms = append(ix.terms, string(list[i][:]))
	}
	return ix
}

// ofTerm returns the entry as the index of attributes has it under a term.
func (en *entry) ofTerm(term string) string {
	return term + fmt.Sprintf("%016d", maxScore-1+en.score) + en.member
}

// parseEntry is the reverse of ofTerm.
func parseEntry(sh *shard, term, text string) (entry, error) {
	place, rest := text[len(term):], ""
	if len(place) == 16+digestLen {
		place, rest = place[:16], place[16:]
	}
	n, err := strconv.ParseInt(place, 10, 64)
	if err != nil || rest == "" {
		return entry{}, fmt.Errorf("%s has the entry %q, which this program did not add", sh.attributes, text)
	}
	return entry{shard: sh, member: rest, score: n - (maxScore - 1), term: term}, nil
}

// entries returns about as many entries that follow last in all shards, in order and without a
// gap, and at least one if there is any. more says whether others follow. Of those it has read some
// beyond a gap. It takes one round trip to each server.
func (s *Store) entries(ctx context.Context, ix index, last *entry, about int) (found, beyond []entry, more bool, err error) {
	// Digests are spread randomly over the shards. With four entries more than the average from
	// each, one round trip finds some 84 of 100 and 187 of 256 entries; with one more, 10 and
	// 83.
	for count := int64(about/shardCount + 4); ; count *= 2 {
		found, beyond, more, err = s.firstOfEach(ctx, ix, last, count)
		if err != nil || len(found) > 0 || !more {
			return found, beyond, more, err
		} // otherwise at least count entries have last's score
	}
}

// firstOfEach is like entries, but reads count entries of each shard and term, and may find none.
func (s *Store) firstOfEach(ctx context.Context, ix index, last *entry, count int64) (found, beyond []entry, more bool, err error) {
	c := s.link.client()
	var cmds []rueidis.Completed
	var parts []func(rueidis.RedisResult) ([]entry, error)
	for i := range s.keys.shards {
		sh := &s.keys.shards[i]
		for _, term := range ix.terms {
			cmds = append(cmds, ix.readTerm(c, sh, term, last, count))
			parts = append(parts, func(res rueidis.RedisResult) ([]entry, error) { return termEntries(sh, term, res) })
		}
		if ix.terms == nil {
			cmds = append(cmds, ix.readScores(c, sh, last, count))
			parts = append(parts, func(res rueidis.RedisResult) ([]entry, error) { return scoredEntries(sh, res) })
		}
	}
	results, err := s.ask(ctx, c, cmds...)
	if err != nil {
		return nil, nil, false, err
	}
	var list []entry
	var frontier *entry // some shard has unread entries after it
	for i, res := range results {
		part, err := parts[i](res)
		if err != nil {
			return nil, nil, false, err
		}
		list = append(list, part...)
		if int64(len(part)) == count {
			more = true
			if end := part[len(part)-1]; frontier == nil || compare(end, *frontier) < 0 {
				frontier = &end
			}
		}
	}
	list = slices.DeleteFunc(list, func(en entry) bool { return last != nil && compare(en, *last) <= 0 })
	slices.SortFunc(list, compare)
	list = slices.CompactFunc(list, func(a, b entry) bool { return compare(a, b) == 0 })
	n := len(list)
	if frontier != nil {
		n = sort.Search(n, func(i int) bool { return compare(list[i], *frontier) > 0 })
	}
	return list[:n], list[n:], more, nil
}

func (ix *index) readScores(c *clients, sh *shard, last *entry, count int64) rueidis.Completed {
	from := "-inf"
	if last != nil {
		from = strconv.FormatInt(last.score, 10) // inclusive: others may have the same score
	}
	return c.B().Zrange().Key(ix.key(sh)).Min(from).Max(ix.until).Byscore().Limit(0, count).Withscores().Build()
}

func scoredEntries(sh *shard, res rueidis.RedisResult) (list []entry, err error) {
	members, err := res.AsZScores()
	for _, m := range members {
		list = append(list, entry{shard: sh, member: m.Member, score: int64(m.Score)})
	}
	return list, err
}

func (ix *index) readTerm(c *clients, sh *shard, term string, last *entry, count int64) rueidis.Completed {
	from := "[" + term
	if last != nil {
		from = "(" + last.ofTerm(term)
	}
	return c.B().Zrange().Key(ix.key(sh)).Min(from).Max("("+term+"\xff").Bylex().Limit(0, count).Build() // \xff sorts after all digits
}

func termEntries(sh *shard, term string, res rueidis.RedisResult) (list []entry, err error) {
	members, err := res.AsStrSlice()
	for _, m := range members {
		en, err := parseEntry(sh, term, m)
		if err != nil {
			return nil, err
		}
		list = append(list, en)
	}
	return list, err
}

// correct moves due entries that are too early to where they belong, and removes the entries of
// missing records. It returns how many it changed.
//
// A crash in between leaves the rest unchanged; the next reader corrects them.
func (s *Store) correct(ctx context.Context, entries []entry) (changed int, err error) {
	shards := map[*shard][]string{}
	for _, en := range entries {
		if en.ours() {
			shards[en.shard] = append(shards[en.shard], en.record())
		}
	}
	var runs []run
	for sh, records := range shards {
		for part := range slices.Chunk(records, maxBatch) {
			runs = append(runs, run{keys: slices.Concat([]string{sh.due, sh.created}, part)})
		}
	}
	return s.evalAll(ctx, scriptCorrect, runs)
}

// forget removes entries of attributes that point to records that are gone or were stored again since.
//
// A crash in between leaves the rest, which the next search removes.
func (s *Store) forget(ctx context.Context, entries []entry) error {
	runs := make([]run, len(entries))
	for i, en := range entries {
		runs[i] = run{[]string{en.record(), en.shard.created, en.shard.attributes}, []string{en.ofTerm(en.term), strconv.FormatInt(en.score, 10)}}
	}
	_, err := s.evalAll(ctx, scriptForget, runs)
	return err
}

// look is what an entry leads to: a record, or the reason why it can't be read. If both are
// nil, the record is gone.
type look struct {
	entry *entry
	rec   *semel.Record
	bad   error
}

// Bounds of one round trip: this many records first, and then as many as should fit into this
// many bytes, judging by the ones before.
const firstReads, readBytes = 16, 4 << 20

// read reads the records of the first limit entries, in order, until the budget is spent. The
// parameter more says whether others follow the entries; the result says whether others follow
// the records that it returns. It fails only if it can't read any of them.
func (s *Store) read(ctx context.Context, entries []entry, more bool, limit int, budget *paging.Budget) (looks []look, _ bool, err error) {
	if len(entries) > limit {
		entries, more = entries[:limit], true
	}
	before := budget.Bytes
	for n := firstReads; len(entries) > 0; {
		n = min(n, len(entries))
		part, err := s.readSome(ctx, entries[:n], budget)
		if err != nil {
			return nil, false, err
		}
		looks, entries = append(looks, part...), entries[n:]
		if budget.Spent {
			return looks, more || len(entries) > 0, nil
		}
		n = 1 + min(readBytes, budget.Bytes)*len(looks)/(before-budget.Bytes+1)
	}
	return looks, more, nil
}

// readSome is read for all of the entries, in one round trip to each server.
func (s *Store) readSome(ctx context.Context, entries []entry, budget *paging.Budget) ([]look, error) {
	c := s.link.client()
	cmds := make([]rueidis.Completed, len(entries), 2*len(entries))
	for i := range entries {
		cmds[i] = c.B().Get().Key(entries[i].record()).Build()
	}
	for i := range entries {
		if entries[i].term != "" {
			cmds = append(cmds, c.B().Zscore().Key(entries[i].shard.created).Member(entries[i].member).Build())
		}
	}
	results, err := s.ask(ctx, c, cmds...)
	if err != nil {
		return nil, err
	}
	looks := make([]look, len(entries))
	for i, res := range results[:len(entries)] {
		en := &entries[i]
		looks[i].entry = en
		value, err := res.ToString()
		budget.Spend(len(value))
		switch {
		case !en.ours():
			looks[i].bad = fmt.Errorf("redisstore: an index of %s has the entry %q, which this program did not add", en.shard.records, en.member)
		case rueidis.IsRedisNil(err):
		case answerWord(err) == "WRONGTYPE": // another program has stored something else under the key
			looks[i].bad = fmt.Errorf("redisstore: the record %x: %w", en.member, err)
		case err != nil:
			return nil, err
		default:
			looks[i].rec, looks[i].bad = s.decode(c, en.member, value)
		}
		if en.term != "" {
			if score, err := results[len(entries)+i].AsFloat64(); err != nil || int64(score) != en.score {
				looks[i].rec, looks[i].bad = nil, nil // the record has another place in lists, where readers find it
			}
		}
	}
	return looks, nil
}

// decode decodes the value that client c has read for a digest.
func (s *Store) decode(c *clients, digest, value string) (*semel.Record, error) {
	begins := min(headLen, len(value))
	rec, err := codec.Decode([]byte(value[begins:]))
	if err == nil && head(rec.NextAt) != value[:begins] {
		err = fmt.Errorf("%w: its head is not its own", codec.ErrCorrupt)
	}
	if err == nil {
		if d := rec.ID.Digest(); string(d[:]) != digest {
			err = errCrossedReply
			s.link.replaceAfter(err, c)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("redisstore: the record %x: %w", digest, err)
	}
	return rec, nil
}

// A cursor may name a member of up to maxMember bytes, and a score below maxScore, which a
// sorted set stores exactly.
const maxMember, maxScore = 512, 1 << 53

// cursor encodes the last entry that was read; nil comes before everything due.
func (en *entry) cursor() string {
	if en == nil {
		en = &entry{}
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(en.score))
	return base64.RawURLEncoding.EncodeToString(append(b, en.member...))
}

// parseCursor decodes a cursor; an empty one gives nil.
func parseCursor(cursor string) (*entry, error) {
	if cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err == nil && len(b) >= 8 && len(b) <= 8+maxMember {
		en := &entry{score: int64(binary.BigEndian.Uint64(b)), member: string(b[8:])}
		if -maxScore < en.score && en.score < maxScore {
			return en, nil
		}
	}
	return nil, &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this store"}
}
