package canon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestWriteFramed writes what Canonicalize returns.
func TestWriteFramed(t *testing.T) {
	for _, text := range []string{`1`, ` {"b":{"d":[1,{"f":1,"e":2}],"c":"x"},"a":1e20} `, `{"a":1,"b":[]}`, `{"":{"z":0,"y":{}},"` + strings.Repeat("x", 300) + `":1}`} {
		want, err := Canonicalize([]byte(text), Exact)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := WriteFramed(&got, []byte(text), Exact); err != nil || got.String() != string(binary.AppendUvarint(nil, uint64(len(want))))+string(want) {
			t.Errorf("%q, %v, want %s behind its length", got.String(), err, want)
		}
	}
	var got bytes.Buffer
	if err := WriteFramed(&got, []byte(`{"a":1,"a":2}`), Exact); err == nil || got.Len() > 0 {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// TestMemory: what is kept of a text is in proportion to it, whatever it is made of.
func TestMemory(t *testing.T) {
	list := func(head, item, tail string) []byte {
		return []byte(head + strings.Repeat(item+",", 1<<20/(len(item)+1)) + item + tail)
	}
	members := []byte(`{"":0`)
	for i := range 1 << 20 / 10 {
		members = fmt.Appendf(members, `,"%05x":0`, 1<<20-i)
	}
	for name, text := range map[string][]byte{
		"members": append(slices.Clone(members), '}'),
		// Of these few are open at a time, and of the next ones all.
		"many objects": list("[", string(members[:20_006])+"}", "]"),
		"open objects": []byte(strings.Repeat(`{"":`, 50) + "0" + strings.Repeat(","+string(members[6:20_006])+"}", 50)),
		"escaped":      append(bytes.ReplaceAll(members, []byte(`,"`), []byte(`,"\n`)), '}'),
		"numbers":      list("[", "1e20", "]"),
		"objects":      list("[", `{"b":0,"a":0}`, "]"),
		"empty":        list("[", "{}", "]"),
		"nested":       []byte(strings.Repeat(`{"b":[`+strings.Repeat("0,", 500)+`0],"c":`, MaxDepth-2) + "0" + strings.Repeat(`,"a":0}`, MaxDepth-2)),
		"escapes":      list(`["`, `\u00e9`, `"]`),
		"longer":       list("[", `-1e-6`, "]"),
		"big ones":     list("[", strings.Repeat("7", 40), "]"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := WriteFramed(io.Discard, text, Exact); err != nil {
			t.Fatal(name, err)
		}
		runtime.ReadMemStats(&after)
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(text)); times > 7 {
			t.Errorf("%s take %.1f times their bytes", name, times)
		}
	}
}
