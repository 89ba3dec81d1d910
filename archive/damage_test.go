package archive

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

// three is an archive of three segments, the first of which is given.
func three(t *testing.T) *disk {
	t.Helper()
	d := newDisk()
	a := mustOpen(t, d, "dir")
	for i := range 3 {
		must(t, a.Write(t.Context(), batch(i+1, 4)))
	}
	must(t, verify(d, "dir"))
	return d
}

// with is the archive with one file replaced, or removed if data is nil.
func (d *disk) with(name string, data []byte) *disk {
	left := newDisk()
	for file, c := range d.now {
		if filepath.Base(file) != name {
			left.now[file] = c
		} else if data != nil {
			left.now[file] = &content{data, len(data)}
		}
	}
	return left
}

func (d *disk) content(t *testing.T, name string) []byte {
	t.Helper()
	c := d.find(filepath.Join("dir", name))
	if c == nil {
		t.Fatalf("there is no %s among %q", name, d.names())
	}
	return c.data
}

// finds checks that the damage is noticed, and blamed on one of the files. Reading
// may hand over what is before the damage, and nothing else.
func finds(t *testing.T, what string, d *disk, blamed ...string) {
	t.Helper()
	err := verify(d, "dir")
	if f, ok := errors.AsType[*FileError](err); !ok || !slices.Contains(blamed, f.File) {
		t.Fatalf("%s: Verify gives %v, and should name one of %q", what, err, blamed)
	}
	var got []string
	err = read(d, "dir", func(rec semel.Record) error { got = append(got, rec.ID.Key); return nil })
	want := expectedOf(4, 3)
	if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) || len(got)%4 != 0 {
		t.Fatalf("%s: %q is read, %v", what, got, err)
	}
}

func expectedOf(size, batches int) []string {
	var list []string
	for i := range batches {
		list = append(list, keysOf(batch(i+1, size))...)
	}
	return list
}

func TestDamageIsFound(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 9
	}
	d := three(t)
	segments := []string{segmentName(1), segmentName(2), segmentName(3)}
	manifest := d.content(t, manifestFile)
	lines := bytes.SplitAfter(manifest, []byte("\n"))[:3]
	last := len(manifest) - len(lines[2])
	for _, name := range append(segments, manifestFile) {
		data := d.content(t, name)
		t.Run("a changed bit in "+name, func(t *testing.T) {
			for at := 0; at < len(data); at += step {
				bad := slices.Clone(data)
				bad[at] ^= 1 << (at % 8)
				blamed := []string{name}
				if name == manifestFile && at >= last {
					blamed = append(blamed, segments[2]) // nothing tells which of the two is wrong
				}
				finds(t, fmt.Sprintf("byte %d of %d", at, len(data)), d.with(name, bad), blamed...)
			}
		})
		t.Run("an end that is missing in "+name, func(t *testing.T) {
			for at := 0; at < len(data); at += step {
				blamed := []string{name}
				if whole := bytes.Count(data[:at], []byte("\n")); name == manifestFile && whole < 3 {
					blamed = append(blamed, segments[whole]) // a segment without a line
				}
				finds(t, fmt.Sprintf("cut at byte %d of %d", at, len(data)), d.with(name, data[:at:at]), blamed...)
			}
		})
		t.Run("something after the end of "+name, func(t *testing.T) {
			for _, more := range []string{"x", "\n", "\x00", string(data)} {
				finds(t, fmt.Sprintf("%.5q", more), d.with(name, append(slices.Clone(data), more...)), name)
			}
		})
	}
	for i, name := range segments {
		t.Run(name+" is missing", func(t *testing.T) { finds(t, "removed", d.with(name, nil), name) })
		t.Run(name+" has the place of another", func(t *testing.T) {
			other := d.content(t, segments[(i+1)%3])
			finds(t, "exchanged", d.with(name, other), name)
		})
		t.Run("the line of "+name+" is missing", func(t *testing.T) {
			left := slices.Delete(slices.Clone(lines), i, i+1)
			finds(t, "removed", d.with(manifestFile, bytes.Join(left, nil)), manifestFile, segments[2])
		})
	}
	t.Run("the manifest is missing", func(t *testing.T) { finds(t, "removed", d.with(manifestFile, nil), segments[0]) })
	t.Run("a changed record, with its line made to fit", func(t *testing.T) {
		forged := newDisk()
		a := mustOpen(t, forged, "dir")
		must(t, a.Write(t.Context(), batch(50, 4)))
		bad := d.with(segments[0], forged.content(t, segments[0]))
		line, _, _ := bytes.Cut(forged.content(t, manifestFile), []byte("\n"))
		bad = bad.with(manifestFile, slices.Concat(line, []byte("\n"), lines[1], lines[2]))
		err := verify(bad, "dir")
		if f, ok := errors.AsType[*FileError](err); !ok || f.File != manifestFile || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("Verify gives %v", err)
		}
	})
}

// TestOpenRefusesDamage: what no crash leaves behind is not taken for one.
func TestOpenRefusesDamage(t *testing.T) {
	d := three(t)
	manifest := d.content(t, manifestFile)
	first := bytes.IndexByte(manifest, '\n') + 1
	for name, bad := range map[string]*disk{
		"a manifest that is missing":               d.with(manifestFile, nil),
		"a manifest that lacks two lines":          d.with(manifestFile, manifest[:first:first]),
		"a manifest with a changed line":           d.with(manifestFile, bytes.Replace(manifest, []byte(`"records":4`), []byte(`"records":5`), 1)),
		"a manifest whose first line is not whole": d.with(manifestFile, manifest[:first-9]),
	} {
		t.Run(name, func(t *testing.T) {
			before := bad.names()
			if a, err := open(bad, "dir"); err == nil {
				t.Fatalf("it is opened, with %q: %v", bad.names(), a.last)
			}
			if after := bad.names(); !slices.Equal(before, after) {
				t.Errorf("%q became %q", before, after)
			}
		})
	}
	t.Run("an unfinished last line is what a crash leaves, and its segment is listed anew", func(t *testing.T) {
		torn := d.with(manifestFile, manifest[:len(manifest)-20])
		mustOpen(t, torn, "dir")
		if again := torn.content(t, manifestFile); !bytes.Equal(again, manifest) {
			t.Errorf("the manifest is\n%s, and was\n%s", again, manifest)
		}
	})
}
