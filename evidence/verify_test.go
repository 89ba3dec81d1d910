package evidence_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// forger changes exports. A careful one leaves nothing to be seen in the lines
// themselves: numbers and hashes are made to fit.
type forger struct {
	lines   []string // entries and checkpoints, in their order
	careful bool
}

func newForger(export []byte, careful bool) *forger {
	lines := strings.Split(strings.TrimSpace(string(export)), "\n")
	return &forger{lines: slices.Clone(lines[1 : len(lines)-1]), careful: careful}
}

func isEntry(line string) bool { return strings.HasPrefix(line, `{"n":`) }

// places are the indexes of the entries' lines.
func (f *forger) places() (at []int) {
	for i, line := range f.lines {
		if isEntry(line) {
			at = append(at, i)
		}
	}
	return at
}

// write makes an export of the lines.
func (f *forger) write(origin string) []byte {
	n, size := 0, 0
	for i, line := range f.lines {
		if !isEntry(line) {
			var c struct{ Checkpoint string }
			if json.Unmarshal([]byte(line), &c) == nil {
				fmt.Sscanf(strings.Split(c.Checkpoint, "\n")[1], "%d", &size)
			}
			continue
		}
		if f.careful {
			f.lines[i] = renumbered(line, n)
		}
		n++
	}
	return fmt.Appendf(nil, "{\"semel_evidence\":1,\"origin\":%q,\"size\":%d,\"view\":\"log\"}\n%s\n{\"end\":%d}\n", origin, size, strings.Join(f.lines, "\n"), size)
}

// renumbered gives the line of an entry a number, and the hash that fits its leaf.
func renumbered(line string, n int) string {
	rest := line[strings.Index(line, `,"leaf":`)+len(`,"leaf":`):]
	leaf := rest[:strings.Index(rest, `,"opening":`)]
	hash := tlog.RecordHash([]byte(leaf))
	return fmt.Sprintf(`{"n":%d,"hash":"%x","leaf":%s`, n, hash[:], rest)
}

// longLog is a log with many checkpoints.
func longLog(t testing.TB, batches int, seed uint64) (*rig, []string) {
	r := newRig(t, &evidence.Options{KeepEvery: time.Nanosecond})
	random := rand.New(rand.NewPCG(seed, 1))
	var kept []string
	for i := range batches {
		for j := range 1 + random.IntN(16) {
			r.do(t, call("acme", fmt.Sprintf("%d-%d", i, j), "p"), "result")
		}
		r.integrate(t)
		signed, _ := r.reader(t).Checkpoint()
		kept = append(kept, signed)
	}
	return r, kept
}

// TestTampering changes a log in each way at random places, carelessly and
// carefully, and wants each change found and the right entry named.
func TestTampering(t *testing.T) {
	thorough.Alone(t)
	clause.Proves(t, "IDS-XV.2", "IDS-XII.1")
	const tries = 100
	r, kept := longLog(t, 10, 41)
	export, origin, trust := r.export(t, nil), r.keys.Origin(), r.keys.Trust()
	if report := verify(t, export, trust, kept...); report.Finding != nil || report.Kept != len(kept) || report.Checkpoints != len(kept) {
		t.Fatalf("the log itself: %+v %v", report, report.Finding)
	}
	elsewhere, elsewhereKept := longLog(t, 10, 41) // as long, and another history
	_ = elsewhereKept
	foreign := newForger(elsewhere.export(t, nil), true)
	seed := thorough.Seed()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	// Each changes the log, and returns the first entry that is wrong then.
	kinds := map[string]func(f *forger) int{
		"edit": func(f *forger) int {
			n := random.IntN(len(f.places()))
			at := f.places()[n]
			start := strings.Index(f.lines[at], `"artifact_id":"ev_`) + len(`"artifact_id":"ev_`) + random.IntN(32)
			b := []byte(f.lines[at])
			b[start] = "0123456789abcdef"[(strings.IndexByte("0123456789abcdef", b[start])+1+random.IntN(15))%16]
			f.lines[at] = string(b)
			return n
		},
		"drop": func(f *forger) int {
			n := random.IntN(len(f.places()))
			f.lines = slices.Delete(f.lines, f.places()[n], f.places()[n]+1)
			return n
		},
		"insert": func(f *forger) int {
			n := random.IntN(len(f.places()))
			forged := foreign.lines[foreign.places()[random.IntN(len(foreign.places()))]]
			f.lines = slices.Insert(f.lines, f.places()[n], renumbered(forged, n))
			return n
		},
		"reorder": func(f *forger) int {
			places := f.places()
			a, b := random.IntN(len(places)), random.IntN(len(places))
			if a == b {
				b = (a + 1) % len(places)
			}
			f.lines[places[a]], f.lines[places[b]] = f.lines[places[b]], f.lines[places[a]]
			return min(a, b)
		},
		"tail cut": func(f *forger) int {
			// A careful one cuts after a checkpoint.
			n := random.IntN(len(f.places()) - 1)
			at := f.places()[n+1]
			if f.careful {
				for isEntry(f.lines[at]) {
					at--
					if at < 0 {
						at = slices.IndexFunc(f.lines, func(l string) bool { return !isEntry(l) })
						break
					}
				}
				at++
			}
			f.lines = f.lines[:at]
			return len(f.places())
		},
		"fork": func(f *forger) int {
			// History is written anew from an entry on, and signed with the right key.
			n := random.IntN(len(f.places()))
			f.resign(t, r.keys, n, random)
			return n
		},
	}
	for name, change := range kinds {
		for _, careful := range []bool{false, true} {
			found, exact := 0, 0
			for range tries {
				f := newForger(export, careful)
				bad := uint64(change(f))
				report := verify(t, f.write(origin), trust, kept...)
				if report.Finding == nil {
					t.Errorf("%s at entry %d, careful %v: not found", name, bad, careful)
					continue
				}
				found++
				first, last := report.Finding.First, report.Finding.Last
				if bad < first || bad > last {
					t.Errorf("%s at entry %d, careful %v: %v", name, bad, careful, report.Finding)
				}
				if first == last {
					exact++
				}
				// What is dropped or inserted right before a checkpoint can't be
				// told from what is further ahead.
				if obvious := name == "edit" || name == "reorder"; obvious && !careful && first != last {
					t.Errorf("%s at entry %d: only %v", name, bad, report.Finding)
				}
			}
			t.Logf("%-8s careful %-5v found %d of %d, %d to the entry", name, careful, found, tries, exact)
		}
	}
}

// resign changes an entry and signs all checkpoints after it anew.
func (f *forger) resign(t *testing.T, keys *evidence.Keys, n int, random *rand.Rand) {
	t.Helper()
	at := f.places()[n]
	f.lines[at] = strings.Replace(f.lines[at], `"artifact_id":"ev_`, fmt.Sprintf(`"artifact_id":"ev_%x`, random.IntN(16)), 1)
	var hashes, stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes = hashes[:0]
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	size := int64(0)
	for i, line := range f.lines {
		if isEntry(line) {
			f.lines[i] = renumbered(line, int(size))
			leaf := line[strings.Index(line, `,"leaf":`)+len(`,"leaf":`) : strings.Index(line, `,"opening":`)]
			more, err := tlog.StoredHashes(size, []byte(leaf), reader)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, more...)
			size++
			continue
		}
		root, err := tlog.TreeHash(size, reader)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := evidence.SignForTest(keys, evidence.Checkpoint{Origin: keys.Origin(), Size: uint64(size), Root: root})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(map[string]string{"checkpoint": signed})
		f.lines[i] = string(text)
	}
}

func TestVerifyRefuses(t *testing.T) {
	r, kept := longLog(t, 3, 7)
	export, trust := string(r.export(t, nil)), r.keys.Trust()
	other := newKeys(t)
	lines := strings.SplitAfter(export, "\n")
	opening := strings.Index(export, `"salt":"`) + len(`"salt":"`)
	for _, test := range []struct {
		name   string
		export string
		trust  *evidence.Trust
		want   evidence.Kind
	}{
		{"nothing", "", trust, evidence.KindFormat},
		{"what is no export", "hello\n", trust, evidence.KindFormat},
		{"another key", export, other.Trust(), evidence.KindSignature},
		{"an opening that was changed", export[:opening] + "zz" + export[opening+2:], trust, evidence.KindOpening},
		{"an export that breaks off", strings.Join(lines[:len(lines)-3], ""), trust, evidence.KindCut},
		{"a line that is none", lines[0] + "{\"n\":0,\"hash\":\"\"}\n" + strings.Join(lines[1:], ""), trust, evidence.KindFormat},
		{"a line after the end", export + lines[1], trust, evidence.KindFormat},
		{"a member too many", strings.Replace(export, `,"opening":{`, `,"x":1,"opening":{`, 1), trust, evidence.KindFormat},
		{"a member twice", strings.Replace(export, `,"opening":{`, `,"opening":null,"opening":{`, 1), trust, evidence.KindFormat},
		{"a member under another name", strings.Replace(export, `,"opening":{`, `,"Opening":{`, 1), trust, evidence.KindFormat},
		{"members in another order", strings.Replace(export, `{"n":0,`, `{"n":0,"opening":null,`, 1), trust, evidence.KindFormat},
		{"a line that goes on behind its object", strings.Replace(export, "}}\n", "}} \n", 1), trust, evidence.KindFormat},
		{"a number that is null", strings.Replace(export, `{"n":0,`, `{"n":null,`, 1), trust, evidence.KindFormat},
		{"a number that is no number", strings.Replace(export, `{"n":0,`, `{"n":0x,`, 1), trust, evidence.KindFormat},
		{"an export without checkpoints", lines[0] + lines[1] + lines[len(lines)-2], trust, evidence.KindSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := verify(t, []byte(test.export), test.trust)
			if report.Finding == nil || report.Finding.Kind != test.want {
				t.Errorf("%+v, %v", report, report.Finding)
			}
		})
	}
	t.Run("a kept checkpoint that another key signed is an error", func(t *testing.T) {
		if _, err := evidence.Verify(strings.NewReader(export), other.Trust(), &evidence.VerifyOptions{Kept: kept}); err == nil {
			t.Error("it is accepted")
		}
	})
	t.Run("two kept checkpoints that disagree show a fork by themselves", func(t *testing.T) {
		forged, err := evidence.SignForTest(r.keys, evidence.Checkpoint{Origin: r.keys.Origin(), Size: 2, Root: tlog.Hash{1}})
		if err != nil {
			t.Fatal(err)
		}
		again, err := evidence.SignForTest(r.keys, evidence.Checkpoint{Origin: r.keys.Origin(), Size: 2, Root: tlog.Hash{2}})
		if err != nil {
			t.Fatal(err)
		}
		if report := verify(t, []byte(export), trust, forged, again); report.Finding == nil || report.Finding.Kind != evidence.KindFork {
			t.Errorf("%+v", report)
		}
	})
}

func TestTenantView(t *testing.T) {
	clause.Proves(t, "IDS-XII.1")
	r := newRig(t, nil)
	r.fill(t, 0, 400)
	r.integrate(t)
	view := r.export(t, &evidence.ExportOptions{Tenant: r.log.Tenant("tenant-1")})
	trust := r.keys.Trust()
	report := verify(t, view, trust)
	if report.Finding != nil || report.Entries != 266 || report.View != "tenant" {
		t.Fatalf("%+v %v", report, report.Finding)
	}
	for _, other := range []string{"tenant-0", "tenant-2", "key-0"} {
		if bytes.Contains(view, []byte(other)) {
			t.Errorf("the view has %q", other)
		}
	}
	signed, c := r.reader(t).Checkpoint()
	if report := verify(t, view, trust, signed); report.Finding != nil || report.Kept != 1 {
		t.Errorf("%+v", report)
	}
	t.Run("changes are found, and the entry is named", func(t *testing.T) {
		lines := strings.SplitAfter(string(view), "\n")
		for i := 2; i < len(lines)-2; i += 7 {
			bad := slices.Clone(lines)
			line := strings.TrimSuffix(bad[i], "\n")
			bad[i] = renumbered(strings.Replace(line, `"executed":true`, `"executed":false`, 1), number(line)) + "\n"
			if bad[i] == lines[i] {
				bad[i] = renumbered(line, number(line)+1) + "\n"
			}
			report := verify(t, []byte(strings.Join(bad, "")), trust)
			if f := report.Finding; f == nil || f.First != uint64(number(bad[i])) || f.First != f.Last {
				t.Fatalf("entry %d: %v", number(line), f)
			}
		}
	})
	t.Run("kept checkpoints of other sizes are not passed over", func(t *testing.T) {
		other := func(size uint64) string {
			signed, err := evidence.SignForTest(r.keys, evidence.Checkpoint{Origin: c.Origin, Size: size, Root: tlog.Hash{1}})
			if err != nil {
				t.Fatal(err)
			}
			return signed
		}
		for _, kept := range [][]string{{other(c.Size - 1)}, {other(c.Size + 1)}, {other(1), other(c.Size + 1)}} {
			report, err := evidence.Verify(bytes.NewReader(view), trust, &evidence.VerifyOptions{Kept: kept})
			if err == nil || report.Finding != nil || !strings.Contains(err.Error(), fmt.Sprintf("one of %d entries", c.Size)) {
				t.Errorf("with %d of them: %v, %v", len(kept), report.Finding, err)
			}
		}
		if report := verify(t, view, trust, other(1), signed); report.Finding != nil || report.Kept != 1 || report.NotCompared != 1 {
			t.Errorf("with one of its size among them: %+v", report)
		}
	})
	t.Run("a fork is found by a kept checkpoint of its size", func(t *testing.T) {
		forged, err := evidence.SignForTest(r.keys, evidence.Checkpoint{Origin: c.Origin, Size: c.Size, Root: tlog.Hash{1}})
		if err != nil {
			t.Fatal(err)
		}
		if report := verify(t, view, trust, forged); report.Finding == nil || report.Finding.Kind != evidence.KindFork {
			t.Errorf("%+v", report)
		}
	})
}

func number(line string) (n int) {
	fmt.Sscanf(line, `{"n":%d`, &n)
	return n
}

// TestStrangeLeaves exports what no log of ours has, byte for byte.
func TestStrangeLeaves(t *testing.T) {
	r := newRig(t, nil)
	var entries []store.Entry
	for _, leaf := range []string{"", "text", "{\n}", `{"a":1} `, `{"a":"é"}`, "\xff", `{"opening":{"x":"}"}}`, `{x}`} {
		entries = append(entries, store.Entry{Leaf: []byte(leaf)})
	}
	if err := r.store.AppendEvidence(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	r.integrate(t)
	if report := verify(t, r.export(t, nil), r.keys.Trust()); report.Finding != nil || report.Entries != uint64(len(entries)) {
		t.Errorf("%+v %v", report, report.Finding)
	}
}

// TestRecordedLogs verifies what earlier versions have written, and writes it again.
func TestRecordedLogs(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	const second = "O0D6FtIf/FVjQgJXccKPZsnfzatcafoiQhdncyDb+Us="
	const first, numbered = "51dWlRGgN4s35puZBssAJlcvwm1MHjS4nm1BUiaPM48=", "RLIUnlcJiSIJmzkmdnSjklEHOf5W+mo/5UAszed5scU="
	for name, want := range map[string]evidence.Report{
		"recorded.jsonl":        {View: "log", Entries: 8, Size: 8, Erased: 5, Checkpoints: 3, Root: first},
		"recorded-tenant.jsonl": {View: "tenant", Entries: 3, Size: 8, Erased: 3, Checkpoints: 1, Root: first},
		// Version 1 doesn't tell the numbers of a sequence.
		"recorded-sequence.jsonl": {View: "log", Entries: 8, Size: 8, Checkpoints: 1, Root: numbered},
		"recorded-2.jsonl":        {View: "log", Entries: 14, Size: 14, Checkpoints: 2, Root: second},
	} {
		keys, _, _ := strings.Cut(strings.TrimSuffix(name, ".jsonl"), "-tenant")
		trust, err := evidence.ParseTrust(read(keys + ".pub"))
		if err != nil {
			t.Fatal(err)
		}
		export := read(name)
		report := verify(t, export, trust)
		want.Origin = "example.com/log"
		if !reflect.DeepEqual(report, want) {
			t.Errorf("%s: %+v, %v", name, report, report.Finding)
		}
		for line := range bytes.Lines(export) {
			if again, err := evidence.Rewrite(bytes.TrimSuffix(line, []byte("\n"))); isEntry(string(line)) && (err != nil || !bytes.Equal(again, line)) {
				t.Errorf("%s: %s is written as %s, %v", name, line, again, err)
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	r, _ := longLog(f, 2, 3)
	export, trust := r.export(f, nil), r.keys.Trust()
	f.Add(export)
	f.Add([]byte(`{"n":0,"hash":"`))
	want := verify(f, export, trust)
	f.Fuzz(func(t *testing.T, data []byte) {
		report := verify(t, data, trust)
		if report.Finding == nil && report.View == "log" && (report.Root != want.Root && report.Size == want.Size) {
			t.Errorf("another log is accepted: %+v", report)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	r := newRig(b, nil)
	r.fill(b, 0, 50_000)
	r.integrate(b)
	export, trust := r.export(b, nil), r.keys.Trust()
	b.SetBytes(int64(len(export)))
	for b.Loop() {
		if report := verify(b, export, trust); report.Finding != nil {
			b.Fatal(report.Finding)
		}
	}
	b.ReportMetric(100_000*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkExport(b *testing.B) {
	r := newRig(b, nil)
	r.fill(b, 0, 50_000)
	r.integrate(b)
	for b.Loop() {
		r.export(b, nil)
	}
	b.ReportMetric(100_000*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
