package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
)

// files is what is in a directory.
type files map[string][]byte

func readFiles(t *testing.T, fs vfs.FS, dir string) files {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := files{}
	for _, name := range names {
		if name == lockFile {
			continue
		}
		f, err := fs.Open(fs.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = make([]byte, info.Size())
		if _, err := f.ReadAt(all[name], 0); err != nil && info.Size() > 0 {
			t.Fatal(err)
		}
		f.Close()
	}
	return all
}

// with is a file system in memory that holds the files, one of them replaced.
func (all files) with(t *testing.T, dir, name string, content []byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for n, data := range all {
		if n == name {
			data = content
		}
		f, err := fs.Create(fs.PathJoin(dir, n), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(slices.Clone(data)); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return fs
}

// stretch is a directory after a sequence of writes to identities, each of which
// was acknowledged before the next.
type stretch struct {
	files files
	// states is what is stored after so many writes; 0 is an absent version.
	states []map[semel.ID]foundRecord
}

func (s *stretch) last() map[semel.ID]foundRecord { return s.states[len(s.states)-1] }

// makeStretch writes in memory, and closes the store or cuts the power.
func makeStretch(t *testing.T, writes int, closed bool) *stretch {
	t.Helper()
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: fs, MemTableBytes: smallTables})
	st := &stretch{states: []map[semel.ID]foundRecord{{}}}
	for i := range writes {
		next := map[semel.ID]foundRecord{}
		maps.Copy(next, st.last())
		id := testID(fmt.Sprint("key ", i*7919%(writes/2)))
		prev := next[id]
		switch {
		case prev.state == semel.Completed && i%3 == 0:
			ref := semel.Ref{ID: id, Revision: testRecord(id, prev.version, prev.state).Revision}
			if n, err := s.Purge(t.Context(), []semel.Ref{ref}); n != 1 || err != nil {
				t.Fatalf("Purge gives %d, %v", n, err)
			}
			next[id] = foundRecord{}
		default:
			is := foundRecord{int64(i + 1), semel.Processing}
			var expect semel.Revision
			if prev.version != 0 {
				is.state, expect = semel.Completed, testRecord(id, prev.version, prev.state).Revision
			}
			if _, ok, err := s.Apply(t.Context(), semel.Write{Record: testRecord(id, is.version, is.state), Expect: expect}); !ok || err != nil {
				t.Fatalf("Apply gives %v, %v", ok, err)
			}
			next[id] = is
		}
		st.states = append(st.states, next)
	}
	if !closed {
		fs = fs.CrashClone(vfs.CrashCloneCfg{})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	st.files = readFiles(t, fs, "store")
	return st
}

// damage is one file with one change.
type damage struct {
	name, what string
	at         int // byte
	content    []byte
}

// flip changes one bit.
func flip(name string, content []byte, rng *rand.Rand) damage {
	c := slices.Clone(content)
	at := rng.IntN(8 * len(c))
	c[at/8] ^= 1 << (at % 8)
	return damage{name, fmt.Sprintf("bit %d of byte %d of %d flipped", at%8, at/8, len(c)), at / 8, c}
}

func truncate(name string, content []byte, rng *rand.Rand) damage {
	at := rng.IntN(len(content))
	return damage{name, fmt.Sprintf("cut off at byte %d of %d", at, len(content)), at, slices.Clone(content[:at])}
}

// look opens the damaged directory and reads everything, up to the first record
// that gives an error: to say which bit of a block is wrong Pebble tries them all,
// which takes a good part of a second. Refused says that the directory was not
// opened, unreadable that there was such a record.
func (st *stretch) look(t *testing.T, d damage) (got map[semel.ID]foundRecord, unreadable, refused bool) {
	t.Helper()
	s, err := Open("store", &Options{FS: st.files.with(t, "store", d.name, d.content), MemTableBytes: smallTables})
	if err != nil {
		return nil, false, true
	}
	// Closing may fail over the damage.
	defer func() { _ = s.Close() }()
	got = map[semel.ID]foundRecord{}
	for id := range st.last() {
		rec, err := s.Get(t.Context(), id)
		switch {
		case errors.Is(err, semel.ErrNotFound):
			got[id] = foundRecord{}
		case err != nil:
			return got, true, false
		default:
			if err := genuine(id, rec); err != nil {
				t.Errorf("%s, %s: %v", d.name, d.what, err)
			}
			got[id] = foundRecord{rec.Fence, rec.State}
		}
	}
	return got, false, false
}

// After any change of one bit, and any truncation, of any file of a closed store
// each read gives the right record or an error. Pebble has a checksum over every
// block of a table and every record of its logs, but takes damage at the end of a
// log for a write that was never finished; that nothing is missing there is what
// the seal is for.
func TestDamageToAClosedStoreIsNoticedOrHarmless(t *testing.T) {
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	st := makeStretch(t, 400, true)
	refused, unreadable, harmless := 0, 0, 0
	for name, content := range st.files {
		trials := min(scaled(150), 8*len(content))
		if strings.HasSuffix(name, ".sst") {
			trials = min(trials, 20)
		}
		for range trials {
			d := flip(name, content, rng)
			if rng.IntN(4) == 0 {
				d = truncate(name, content, rng)
			}
			got, bad, shut := st.look(t, d)
			switch {
			case shut:
				refused++
			case bad:
				unreadable++
			default:
				harmless++
			}
			wrong := 0
			for id, is := range got {
				if is != st.last()[id] {
					wrong++
				}
			}
			if wrong > 0 {
				t.Fatalf("%s, %s: %d of %d records are missing or older ones", d.name, d.what, wrong, len(st.last()))
			}
		}
	}
	t.Logf("%d files; %d times the directory was refused, %d times some records, %d times all was there", len(st.files), refused, unreadable, harmless)
	if refused == 0 || unreadable == 0 {
		t.Error("too little has happened to prove anything")
	}
}

// logBlock is how much of a log Pebble reads at a time, logHeader how much of that
// precedes each chunk of a record: checksum (4), length (2), kind (1), number of the
// log (4), how far it was synced (8).
const logBlock, logHeader = 32 << 10, 19

// logEnds returns the bytes of a log of which one bit makes Pebble take a chunk for
// the end of the log, before it looks at the checksum: a log whose file is used again
// ends where the number in a chunk is that of the next log, so in a log with an even
// number the lowest bit of that number is enough.
func logEnds(t *testing.T, name string, content []byte) map[int]bool {
	t.Helper()
	var number uint32
	if _, err := fmt.Sscanf(name, "%d.log", &number); err != nil {
		t.Fatal(err)
	}
	ends := map[int]bool{}
	for at := 0; at+logHeader <= len(content); {
		if rest := logBlock - at%logBlock; rest < logHeader {
			at += rest
			continue
		}
		if got := binary.LittleEndian.Uint32(content[at+7:]); got != number {
			t.Fatalf("the chunk at byte %d of %s is one of log %d", at, name, got)
		}
		ends[at+7] = number%2 == 0
		at += logHeader + int(binary.LittleEndian.Uint16(content[at+4:]))
	}
	return ends
}

// A store that was not closed has no seal, and its newest records are in the log
// only. Pebble says throughout the log up to where it was synced, and looks for
// that in the blocks after one with a wrong checksum: so a changed bit is noticed
// in all blocks but the last, but for one bit of each chunk, see logEnds. There, in
// the last block, or where the log is cut off, damage can't be told from a write that
// was never finished: the newest records are missing then, but never others, and what
// is there is right.
func TestDamageToTheLogLosesNothingButItsEnd(t *testing.T) {
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	st := makeStretch(t, 120, false)
	refused, lost, whole := 0, 0, 0
	for name, content := range st.files {
		if !strings.HasSuffix(name, ".log") || len(content) == 0 {
			continue
		}
		lastBlock := (len(content) - 1) / logBlock * logBlock
		ends := logEnds(t, name, content)
		for i := range scaled(200) {
			d := flip(name, content, rng)
			if i%2 == 0 {
				d = truncate(name, content, rng)
			}
			got, bad, shut := st.look(t, d)
			if shut || bad {
				refused++
				continue
			}
			missing := st.missing(got)
			switch {
			case missing < 0:
				t.Fatalf("%s, %s: what is there was never there", d.name, d.what)
			case missing > 0 && i%2 == 1 && d.at < lastBlock && !(ends[d.at] && d.content[d.at] == content[d.at]^1):
				t.Fatalf("%s, %s: the last %d writes are missing", d.name, d.what, missing)
			case missing > 0:
				lost++
			default:
				whole++
			}
		}
	}
	t.Logf("%d times the log was refused, %d times its end was missing, %d times all was there", refused, lost, whole)
	if refused == 0 || lost == 0 {
		t.Error("too little has happened to prove anything")
	}
}

// missing says how many of the last writes are missing if got is all there is;
// -1 if there was never just that.
func (st *stretch) missing(got map[semel.ID]foundRecord) int {
	for n := range st.states {
		then := st.states[len(st.states)-1-n]
		same := true
		for id, is := range got {
			same = same && then[id] == is
		}
		if same {
			return n
		}
	}
	return -1
}
