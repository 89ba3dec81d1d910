package pebblestore

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// walRig judges one log of a directory whose process was killed, again and again with
// other content, as Open does before Pebble reads it.
type walRig struct {
	store   *Store
	name    string
	content []byte
	flushed uint64
	end     uint64 // the number of the last batch
	promise uint64 // the newest batch that the log says is durable
	ends    map[int]uint64
}

// newWALRig lets write work on a store, and kills it.
func newWALRig(t *testing.T, write func(s *Store)) *walRig {
	t.Helper()
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: fs})
	write(s)
	batches := s.counts().batches
	killed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := (&Options{FS: killed}).withDefaults()
	r := &walRig{store: &Store{fs: killed, dir: "store", logger: logger{o.Logger, o.fatal}}, ends: map[int]uint64{0: 0}}
	var err error
	if r.store.lock, err = lockDirectory(killed, "store"); err != nil {
		t.Fatal(err)
	}
	if r.flushed, err = r.store.flushed(&o); err != nil {
		t.Fatal(err)
	}
	if err := r.store.lock.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range readFiles(t, killed, "store") {
		if strings.HasSuffix(name, walSuffix) && len(content) > len(r.content) {
			r.name, r.content = name, content
		}
	}
	end, err := r.judge(t, r.content, true)
	if err != nil {
		t.Fatal(err)
	}
	r.end = uint64(end)
	log := r.scan(t, r.content)
	if r.end != batches || log.last != r.end || log.end != len(r.content) {
		t.Fatalf("the log of %d bytes ends at byte %d with batch %d of %d", len(r.content), log.end, log.last, batches)
	}
	r.promise = r.promised()
	return r
}

func (r *walRig) number() uint64 {
	n, _, _ := wal.ParseLogFilename(r.name)
	return uint64(n)
}

func (r *walRig) scan(t *testing.T, content []byte) *walScan {
	t.Helper()
	put(t, r.store.fs, "store", r.name, content)
	log, err := scanWAL(r.store.fs, "store", r.name, r.flushed)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func (r *walRig) judge(t *testing.T, content []byte, strict bool) (walEnd, error) {
	t.Helper()
	put(t, r.store.fs, "store", r.name, content)
	logs, err := r.store.scanLogs(r.flushed)
	if err != nil {
		t.Fatal(err)
	}
	return r.store.judge(logs, r.flushed, strict)
}

// promised goes through the chunks of the log, and notes where batches end.
func (r *walRig) promised() (durable uint64) {
	number := uint64(0)
	for at := 0; at < len(r.content); {
		rest := r.content[at:min(len(r.content), at/walBlock*walBlock+walBlock)]
		c, ok := parseWALChunk(rest)
		if !ok {
			at += len(rest)
			continue
		}
		at += c.size()
		if p, ok := parseProgress(c.payload); ok && c.begins() {
			durable, number = max(durable, p.durable), p.number
		}
		if c.ends() {
			r.ends[at] = number
		}
	}
	return durable
}

// whole is the last batch that ends before a byte.
func (r *walRig) whole(at int) uint64 {
	last := uint64(0)
	for end, number := range r.ends {
		if end <= at {
			last = max(last, number)
		}
	}
	return last
}

// oneAfterTheOther writes small records, each when the one before is durable.
func oneAfterTheOther(t *testing.T, n int) func(s *Store) {
	return func(s *Store) {
		for i := range n {
			rec := testRecord(testID(fmt.Sprint(i)), 1, semel.Processing)
			rec.Result.Data = make([]byte, i%40)
			w := store.Write{Record: new(rec), Evidence: []store.Entry{testEntry(rec.ID, 0, 1)}}
			if _, ok, err := s.Apply(t.Context(), w); !ok || err != nil {
				t.Errorf("Apply gives %v, %v", ok, err)
			}
		}
	}
}

// atOnce writes larger records, many of them together.
func atOnce(t *testing.T, n int) func(s *Store) {
	return func(s *Store) {
		var work sync.WaitGroup
		for c := range 16 {
			work.Go(func() {
				for i := range n {
					apply(t, s, testRecord(testID(fmt.Sprint(c, " ", i)), 1, semel.Completed), store.Revision{})
				}
			})
		}
		work.Wait()
	}
}

// After one changed bit, wherever it is in the log, everything is there or the directory
// is refused, in either profile.
func TestEveryBitOfALog(t *testing.T) {
	r := newWALRig(t, oneAfterTheOther(t, 6))
	step := max(1, 400/thorough.Scaled(400))
	refused := map[bool]int{}
	for bit := 0; bit < 8*len(r.content); bit += step {
		c := slices.Clone(r.content)
		c[bit/8] ^= 1 << (bit % 8)
		for _, strict := range []bool{false, true} {
			end, err := r.judge(t, c, strict)
			if err == nil && uint64(end) != r.end {
				t.Fatalf("with bit %d of byte %d of %d changed, strict %v, batches after %d are gone", bit%8, bit/8, len(c), strict, end)
			}
			if err != nil {
				refused[strict]++
				if !strings.Contains(err.Error(), "Put a copy of the directory in its place") {
					t.Fatalf("the error does not say what to do: %v", err)
				}
			}
		}
	}
	t.Logf("%d bytes, %v times refused", len(r.content), refused)
}

// After one changed byte the strict profile does not lose anything either. Otherwise what
// may be gone is what no later write knew to be durable: here, the last batch.
func TestEveryByteOfALog(t *testing.T) {
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for name, r := range map[string]*walRig{
		"one after the other": newWALRig(t, oneAfterTheOther(t, 12)),
		"at once":             newWALRig(t, atOnce(t, 10)),
	} {
		last, lost := r.end-r.promise, 0
		if name == "one after the other" && last != 1 {
			t.Errorf("the last %d batches are not known to be durable", last)
		}
		trials := thorough.Scaled(1500)
		for i := range trials {
			at := i
			if trials < len(r.content) {
				at = rng.IntN(len(r.content))
			}
			c := slices.Clone(r.content)
			c[at] ^= byte(1 + rng.IntN(255))
			if end, err := r.judge(t, c, true); err == nil && uint64(end) != r.end {
				t.Fatalf("%s: with byte %d of %d changed from %x to %x, batches after %d of %d are gone", name, at, len(c), r.content[at], c[at], end, r.end)
			}
			end, err := r.judge(t, c, false)
			if err == nil && uint64(end) < r.promise {
				t.Fatalf("%s: with byte %d of %d changed from %x to %x, batches after %d are gone, and %d was known to be durable", name, at, len(c), r.content[at], c[at], end, r.promise)
			}
			if err == nil && uint64(end) < r.end {
				lost++
			}
		}
		t.Logf("%s: %d bytes, %d batches; in %d trials, some of the last %d were lost %d times", name, len(r.content), r.end, trials, last, lost)
	}
}

// A log that ends early, wherever that is, is opened with what is whole in it: so does one
// that was being written when the process was killed, or the power failed.
func TestEveryCutOfALog(t *testing.T) {
	thorough.Alone(t)
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	rigs := []*walRig{newWALRig(t, oneAfterTheOther(t, 12)), newWALRig(t, atOnce(t, 10))}
	// What an older log leaves in a file that is used again.
	older := newWALRig(t, atOnce(t, 14))
	for _, r := range rigs {
		old := relabel(older.content, uint32(r.number())-1)
		step := max(1, len(r.content)/max(thorough.Scaled(400), 50))
		kept, alike := []int{}, 0
		for at := 0; at <= len(r.content); at += step {
			kept = append(kept, at)
		}
		for at := range r.ends {
			kept = append(kept, at)
		}
		for _, at := range kept {
			want := r.whole(at)
			whole := slices.Clone(r.content[:at])
			_, boundary := r.ends[at]
			for _, tail := range []struct {
				name  string
				bytes []byte
				opens bool // also in the strict profile
			}{
				{"nothing", nil, true},
				{"zeros", make([]byte, rng.IntN(3*walBlock)), boundary},
				{"an older log", old[min(at, len(old)):], boundary},
			} {
				c := slices.Concat(whole, tail.bytes)
				apart := bitsApart(c, r.content[at:r.after(at)], at)
				if apart == 0 && !boundary {
					continue // nothing but zeros was cut off
				}
				end, err := r.judge(t, c, false)
				if err != nil && strings.Contains(err.Error(), "what is there was written and is damaged") && !boundary {
					// A part of it that was not written may look like one changed
					// bit: by chance, or because there is only one in it.
					if apart != 1 {
						alike++
					}
					continue
				}
				if err != nil || uint64(end) != want {
					t.Fatalf("cut off at byte %d of %d, with %s behind: the end is batch %d, want %d, error %v", at, len(r.content), tail.name, end, want, err)
				}
				if end, err := r.judge(t, c, true); tail.opens && (err != nil || uint64(end) != want) {
					t.Fatalf("cut off at byte %d of %d, with %s behind: in the strict profile the end is batch %d, want %d, error %v", at, len(r.content), tail.name, end, want, err)
				}
			}
		}
		if alike > 5 {
			t.Errorf("%d of %d logs that were cut off look like damaged ones", alike, 3*len(kept))
		}
	}
}

// after is where the batch ends that has a byte.
func (r *walRig) after(at int) int {
	end := len(r.content)
	for e := range r.ends {
		if e > at && e < end {
			end = e
		}
	}
	return end
}

// bitsApart counts the bits by which c differs from a part of what it was, from a byte on.
func bitsApart(c, was []byte, from int) (n int) {
	for i, b := range was {
		if from+i >= len(c) {
			return -1
		}
		n += bits.OnesCount8(b ^ c[from+i])
	}
	return n
}

// sealChunk gives a chunk a number, and its checksum.
func sealChunk(b []byte, number uint32) {
	binary.LittleEndian.PutUint32(b[walNumber:], number)
	binary.LittleEndian.PutUint32(b, walChecksum(b[walKind:]))
}

// relabel makes a log one of another number.
func relabel(content []byte, number uint32) []byte {
	c := slices.Clone(content)
	for at := 0; at < len(c); {
		rest := c[at:min(len(c), at/walBlock*walBlock+walBlock)]
		k, ok := parseWALChunk(rest)
		if !ok {
			at += len(rest)
			continue
		}
		sealChunk(rest[:k.size()], number)
		at += k.size()
	}
	return c
}
