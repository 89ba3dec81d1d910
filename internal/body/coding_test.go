package body

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func pack(t *testing.T, w func(io.Writer) io.WriteCloser, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := w(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(w io.Writer) io.WriteCloser {
	z := gzip.NewWriter(w)
	z.ModTime = time.Unix(1764000000, 0)
	z.Name = "x"
	return z
}

func zlibbed(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }

func bare(w io.Writer) io.WriteCloser {
	z, _ := flate.NewWriter(w, flate.BestSpeed)
	return z
}

func stored(w io.Writer) io.WriteCloser {
	z, _ := flate.NewWriter(w, flate.NoCompression)
	return z
}

func TestDecode(t *testing.T) {
	for _, text := range []string{"", "x", strings.Repeat(`{"a":1}`, 30_000)} {
		for name, c := range map[string]struct {
			coding Coding
			body   []byte
		}{
			"plain": {Plain, []byte(text)}, "gzip": {Gzip, pack(t, gzipped, text)}, "zlib": {Deflate, pack(t, zlibbed, text)},
			"a bare stream": {Deflate, pack(t, bare, text)}, "one that isn't compressed": {Deflate, pack(t, stored, text)},
		} {
			r, err := c.coding.Decode(iotest.OneByteReader(bytes.NewReader(c.body)))
			if err != nil {
				t.Fatalf("%s of %d bytes: %v", name, len(text), err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != text {
				t.Errorf("%s of %d bytes became %d, %v", name, len(text), len(got), err)
			}
			if c.coding == Plain {
				continue
			}
			for what, body := range map[string][]byte{
				"a tail": append(bytes.Clone(c.body), 0), "a second member": append(bytes.Clone(c.body), c.body...),
				"a cut": c.body[:len(c.body)-1], "nothing": nil, "other bytes": []byte("not compressed"),
			} {
				r, err := c.coding.Decode(bytes.NewReader(body))
				if err == nil {
					_, err = io.ReadAll(r)
				}
				if err == nil {
					t.Errorf("%s of %d bytes with %s is read", name, len(text), what)
				}
				if strings.HasPrefix(what, "a tail") && !errors.Is(err, ErrTail) {
					t.Errorf("%s with a tail: %v", name, err)
				}
			}
		}
	}
	if _, err := Unknown.Decode(strings.NewReader("")); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	broken := errors.New("broken")
	r, _ := Gzip.Decode(io.MultiReader(bytes.NewReader(pack(t, gzipped, "x")), iotest.ErrReader(broken)))
	if _, err := io.ReadAll(r); !errors.Is(err, broken) {
		t.Errorf("a source that breaks at the end: %v", err)
	}
}

func TestCodingOf(t *testing.T) {
	for want, fields := range map[Coding][][]string{
		Plain: {nil, {""}, {"identity"}, {" Identity "}}, Gzip: {{"gzip"}, {"GZip"}, {"x-gzip"}}, Deflate: {{"deflate"}},
		Unknown: {{"br"}, {"gzip, gzip"}, {"gzip", "gzip"}, {"identity", "identity"}, {"gzip;q=1"}},
	} {
		for _, f := range fields {
			if got := CodingOf(http.Header{"Content-Encoding": f}); got != want {
				t.Errorf("%q is %d, want %d", f, got, want)
			}
		}
	}
}
