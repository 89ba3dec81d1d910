package pebblestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

func TestWhatTheLogsSayTogether(t *testing.T) {
	log := func(first, last uint64, change ...func(*walScan)) *walScan {
		s := &walScan{name: "000007.log", first: first, last: last, end: 100}
		for _, f := range change {
			f(s)
		}
		return s
	}
	behind := func(next, durable uint64) func(*walScan) {
		return func(s *walScan) { s.behind, s.next, s.durable = true, next, durable }
	}
	ambiguous := func(s *walScan) { s.ambiguous = true }
	damaged := func(s *walScan) { s.damaged = true }
	gap := func(s *walScan) { s.gap = true }
	const always, strict, never = "", "strict", "never"
	for _, c := range []struct {
		name    string
		flushed uint64
		logs    []*walScan
		opens   string // or how it is refused
		end     walEnd
	}{
		{"no log has anything", 5, []*walScan{log(0, 0)}, always, 5},
		{"it goes on after the tables", 5, []*walScan{log(6, 9)}, always, 9},
		{"it begins in the tables", 5, []*walScan{log(3, 9)}, always, 9},
		{"it has only what tables have", 9, []*walScan{log(3, 9)}, always, 9},
		{"two logs follow each other", 5, []*walScan{log(6, 9), log(10, 12)}, always, 12},
		{"the last is empty", 5, []*walScan{log(6, 9), log(0, 0)}, always, 9},
		{"tables are missing", 5, []*walScan{log(7, 9)}, never, 0},
		{"all before is missing", 0, []*walScan{log(2, 9)}, never, 0},
		{"the end of a log is missing", 5, []*walScan{log(6, 9), log(11, 12)}, never, 0},
		{"the middle of a log is missing", 5, []*walScan{log(6, 9, gap)}, never, 0},
		{"the first part is damaged", 5, []*walScan{log(0, 0, damaged)}, never, 0},
		{"a part is damaged", 5, []*walScan{log(6, 9, damaged)}, never, 0},
		{"a part is damaged, of a log that tables have", 9, []*walScan{log(6, 8, damaged)}, always, 9},
		{"the first part is damaged, of a log that tables have", 9, []*walScan{log(0, 0, damaged, behind(7, 6))}, always, 9},
		{"what is behind knows that it was durable", 5, []*walScan{log(6, 9, behind(11, 10))}, never, 0},
		{"what is behind does not", 5, []*walScan{log(6, 9, behind(11, 9))}, strict, 9},
		{"nothing is readable, and what is behind knows that it was durable", 5, []*walScan{log(0, 0, behind(7, 6))}, never, 0},
		{"nothing is readable, and what is behind does not", 5, []*walScan{log(0, 0, behind(7, 5))}, strict, 5},
		{"there may be a part of it at the end", 5, []*walScan{log(6, 9, ambiguous)}, strict, 9},
		{"so it is of a log that is not the last", 5, []*walScan{log(6, 9, ambiguous), log(10, 12)}, always, 12},
	} {
		for _, profile := range []bool{false, true} {
			s := &Store{fs: vfs.NewMem(), dir: "store", logger: logger{Logger: slog.New(slog.DiscardHandler)}}
			end, err := s.judge(c.logs, c.flushed, profile)
			refused := c.opens == never || c.opens == strict && profile
			if (err != nil) != refused || err == nil && end != c.end {
				t.Errorf("%s, strict %v: the end is batch %d, error %v; want %d, refused %v", c.name, profile, end, err, c.end, refused)
			}
		}
	}
}

// crashed is a directory after a crash, with so many records, and the name of its log.
func crashed(t *testing.T, records int) (all files, log string) {
	t.Helper()
	st := makeStretch(t, records, false)
	size := -1
	for name, content := range st.files {
		if strings.HasSuffix(name, walSuffix) && len(content) > size {
			log, size = name, len(content)
		}
	}
	return st.files, log
}

func openFiles(t *testing.T, all files, name string, content []byte, opts Options) (*Store, vfs.FS, error) {
	t.Helper()
	opts.FS, opts.MemTableBytes = all.with(t, "store", name, content), smallTables
	s, err := Open("store", &opts)
	return s, opts.FS, err
}

// The error about a damaged log says how to accept the loss, and that works.
func TestTheLossOfADamagedLogCanBeAccepted(t *testing.T) {
	all, name := crashed(t, 20)
	content := slices.Clone(all[name])
	middle := len(content) / 2
	content[middle] ^= 0xff
	_, _, err := openFiles(t, all, name, content, Options{})
	if err == nil {
		t.Fatal("it was opened")
	}
	_, command, ok := strings.Cut(err.Error(), "by truncate -s ")
	size, file, _ := strings.Cut(command, " ")
	end := 0
	for _, d := range size {
		end = 10*end + int(d-'0')
	}
	if !ok || file != "store/"+name || end == 0 || end > middle {
		t.Fatalf("the error says %v", err)
	}
	s, _, err := openFiles(t, all, name, content[:end], Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if page, err := s.Search(t.Context(), store.Query{}); err != nil || len(page.Records) == 0 {
		t.Errorf("then there are %d records, %v", len(page.Records), err)
	}
}

// Without the strict profile a write that is not whole is taken for one that was never
// acknowledged, and the logger hears of it.
func TestAnUnfinishedWriteIsRefusedByTheStrictProfileOnly(t *testing.T) {
	all, name := crashed(t, 20)
	content := slices.Clone(all[name])
	clear(content[len(content)-20:])
	content[len(content)-1] = 1 // some of it was written
	if _, _, err := openFiles(t, all, name, content, Options{Strict: true}); err == nil || !strings.Contains(err.Error(), "the strict profile takes no risk") {
		t.Errorf("the strict profile gives %v", err)
	}
	var log bytes.Buffer
	s, _, err := openFiles(t, all, name, content, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.Contains(log.String(), "the log ends in a write that is not whole") || !strings.Contains(log.String(), name) {
		t.Errorf("the log says %q", &log)
	}
}

// The content of a record may look like a part of the log, made by somebody who wants that
// a store whose last write was cut off is refused.
func TestContentThatLooksLikeALogIsNotTakenForOne(t *testing.T) {
	var number uint64
	forge := func(s *Store) {
		rec := testRecord(testID("forged"), 1, semel.Completed)
		for n := range uint32(40) {
			b := s.db.NewBatch()
			progress{math.MaxUint32, math.MaxUint32}.log(b)
			must(b.Set([]byte("x"), []byte("y"), nil))
			chunk := append(make([]byte, walHeader), b.Repr()...)
			chunk[walKind] = walFull
			binary.LittleEndian.PutUint16(chunk[walLength:], uint16(len(chunk)-walHeader))
			sealChunk(chunk, n)
			rec.Result.Data = append(rec.Result.Data, chunk...)
			b.Close()
		}
		rec.Result.Data = append(rec.Result.Data, make([]byte, 5000)...)
		apply(t, s, rec, store.Revision{})
	}
	r := newWALRig(t, forge)
	number = r.number()
	start := slices.Max(slices.DeleteFunc(slices.Sorted(keysOf(r.ends)), func(at int) bool { return at == len(r.content) }))
	if number >= 40 || r.whole(start) != r.end-1 {
		t.Fatalf("log %d, and batch %d of %d", number, r.whole(start), r.end)
	}
	found := 0
	for at := start + 1; at < len(r.content)-walHeader; at++ {
		if c, ok := parseWALChunk(r.content[at:min(len(r.content), walBlock)]); ok && uint64(c.number) == number {
			found++
		}
	}
	if found != 1 {
		t.Fatalf("%d parts of the content look like a chunk of the log", found)
	}
	c := slices.Clone(r.content)
	clear(c[len(c)-4500:]) // which was not written
	if end, err := r.judge(t, c, false); err != nil || uint64(end) != r.end-1 {
		t.Errorf("the end is batch %d, want %d, error %v", end, r.end-1, err)
	}
}

func keysOf(m map[int]uint64) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// A process is killed while it works for many callers, and a file is damaged after that.
// What it had acknowledged is there, or the directory is refused, or reads fail.
func TestDamageAfterKillIsNoticed(t *testing.T) {
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	counts := map[string]int{}
	for i := range max(thorough.Scaled(6), 2) {
		base := t.TempDir()
		h := newHistory(0)
		c := startChild(t, orders{Dir: base, Seed: rng.Uint64(), Steps: math.MaxInt})
		follower{answers: 50 + rng.IntN(600)}.follow(t, c, h)
		if code := c.ended(t); code != -1 {
			t.Fatalf("child %d ended with code %d:\n%s", i, code, c.stderr.String())
		}
		for n := range max(thorough.Scaled(60), 8) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
				t.Fatal(err)
			}
			what, strict := "nothing", true
			if n > 0 {
				what, strict = spoil(t, dir, rng)
			}
			s, err := Open(dir, &Options{Strict: strict})
			if err != nil && n == 0 { // killed in the middle of writing some pages
				counts["refused undamaged"]++
			} else if err != nil {
				counts["refused"]++
			}
			if err != nil {
				continue
			}
			stored, err := inspect(t.Context(), s)
			switch {
			case err != nil && !pebble.IsCorruptionError(err) && !errors.Is(err, codec.ErrCorrupt):
				t.Errorf("%s: %v", what, err)
			case err != nil:
				counts["unreadable"]++
			default:
				counts["harmless"]++
				if err := h.compare(stored); err != nil {
					t.Errorf("%s, strict %v: %v", what, strict, err)
				}
			}
			_ = s.Close() // which may fail over the damage
		}
	}
	t.Log(counts)
	if counts["refused undamaged"] > 2 {
		t.Error("the strict profile refuses what kill leaves")
	}
	if counts["refused"] == 0 {
		t.Error("too little has happened to prove anything")
	}
}

// spoil changes one bit of a file in a directory or, for the strict profile, one byte of
// a log.
func spoil(t *testing.T, dir string, rng *rand.Rand) (what string, strict bool) {
	t.Helper()
	var names []string
	for name, content := range listing(t, dir) {
		switch {
		case len(content) == 0:
		case strings.HasSuffix(name, walSuffix):
			names = append(names, name, name, name)
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	name := names[rng.IntN(len(names))]
	file := filepath.Join(dir, name)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := flip(name, content, rng)
	if strict = rng.IntN(2) == 0; strict && strings.HasSuffix(name, walSuffix) {
		d.content[d.at] = content[d.at] ^ byte(1+rng.IntN(255))
	}
	if err := os.WriteFile(file, d.content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name + ", " + d.what, strict
}
