package pebblestore

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
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
	for n, data := range all {
		if n == name {
			data = content
		}
		put(t, fs, dir, n, data)
	}
	return fs
}

// put makes a file.
func put(t *testing.T, fs vfs.FS, dir, name string, content []byte) {
	t.Helper()
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Create(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(content)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
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
			ref := store.Ref{ID: id, Revision: testRecord(id, prev.version, prev.state).Revision}
			if n, err := s.Purge(t.Context(), []store.Ref{ref}); n != 1 || err != nil {
				t.Fatalf("Purge gives %d, %v", n, err)
			}
			next[id] = foundRecord{}
		default:
			is := foundRecord{int64(i + 1), semel.Processing}
			var expect store.Revision
			if prev.version != 0 {
				is.state, expect = semel.Completed, testRecord(id, prev.version, prev.state).Revision
			}
			if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(testRecord(id, is.version, is.state)), Expect: expect}); !ok || err != nil {
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
func (st *stretch) look(t *testing.T, d damage, strict bool) (got map[semel.ID]foundRecord, unreadable, refused bool) {
	t.Helper()
	s, err := Open("store", &Options{FS: st.files.with(t, "store", d.name, d.content), MemTableBytes: smallTables, Strict: strict})
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
			if err := genuine(id, *rec); err != nil {
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
	thorough.Alone(t)
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	st := makeStretch(t, 400, true)
	refused, unreadable, harmless := 0, 0, 0
	for name, content := range st.files {
		trials := min(thorough.Scaled(150), 8*len(content))
		if strings.HasSuffix(name, ".sst") {
			trials = min(trials, 20)
		}
		for range trials {
			d := flip(name, content, rng)
			if rng.IntN(4) == 0 {
				d = truncate(name, content, rng)
			}
			got, bad, shut := st.look(t, d, false)
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

// After any change of one bit of any file of a store that was not closed, it isn't opened,
// or reads give the right record or an error. A log that was cut off ends early: the
// newest records are missing then, but never others, and what is there is right.
func TestDamageAfterACrashIsNoticedOrHarmless(t *testing.T) {
	thorough.Alone(t)
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	counts := map[string]int{}
	for _, writes := range []int{60, 400} {
		st := makeStretch(t, writes, false)
		for name, content := range st.files {
			trials := min(thorough.Scaled(100), 8*len(content))
			if strings.HasSuffix(name, ".sst") {
				trials = min(trials, 20)
			}
			for range trials {
				d, cut := flip(name, content, rng), false
				if strings.HasSuffix(name, walSuffix) && rng.IntN(4) == 0 {
					d, cut = truncate(name, content, rng), true
				}
				got, bad, shut := st.look(t, d, rng.IntN(2) == 0)
				missing := st.missing(got)
				switch {
				case shut && cut:
					t.Fatalf("%s, %s: it was not opened", d.name, d.what)
				case shut:
					counts["refused"]++
				case missing < 0:
					t.Fatalf("%s, %s: what is there was never there", d.name, d.what)
				case bad:
					counts["unreadable"]++
				case cut && missing > 0:
					counts["cut off"]++
				case missing > 0:
					t.Fatalf("%s, %s: the last %d writes are missing", d.name, d.what, missing)
				default:
					counts["harmless"]++
				}
			}
		}
		t.Logf("after %d writes, %d files: %v", writes, len(st.files), counts)
	}
	if len(counts) < 3 {
		t.Error("too little has happened to prove anything")
	}
}

// When a directory was opened after a crash, all is in tables, and a manifest that has lost
// its end knows nothing of the newest of them. The log tells, as soon as it was opened.
func TestDamageToTheManifestOfADirectoryThatWasOnlyOpened(t *testing.T) {
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	st := makeStretch(t, 60, false)
	fs := vfs.NewCrashableMem()
	for name, content := range st.files {
		put(t, fs, "store", name, content)
	}
	s := mustOpen(t, "store", &Options{FS: fs, MemTableBytes: smallTables})
	after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	st.files = readFiles(t, after, "store")
	// Pebble deletes the logs that tables have made needless when it finds the time.
	logs := slices.DeleteFunc(slices.Sorted(maps.Keys(st.files)), func(name string) bool { return !strings.HasSuffix(name, walSuffix) })
	for _, name := range logs[:len(logs)-1] {
		delete(st.files, name)
	}
	refused := 0
	for name, content := range st.files {
		if !strings.HasPrefix(name, "MANIFEST-") {
			continue
		}
		for range max(thorough.Scaled(200), 20) {
			d := flip(name, content, rng)
			got, bad, shut := st.look(t, d, false)
			if shut || bad {
				refused++
			} else if missing := st.missing(got); missing != 0 {
				t.Fatalf("%s, %s: the last %d writes are missing", d.name, d.what, missing)
			}
		}
	}
	if refused == 0 {
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
