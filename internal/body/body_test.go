package body

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/iotest"
)

func TestRead(t *testing.T) {
	for _, size := range []int{0, 1, 1000, firstRead - 1, firstRead, firstRead + 1, 300_000} {
		want := bytes.Repeat([]byte("x"), size)
		for _, announced := range []int64{-1, int64(size)} {
			r := httptest.NewRequest("POST", "/", bytes.NewReader(want))
			r.ContentLength = announced
			if got, err := Read(httptest.NewRecorder(), r, int64(size)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes became %d, %v", size, len(got), err)
			}
			r = httptest.NewRequest("POST", "/", io.MultiReader(bytes.NewReader(want), bytes.NewReader([]byte("y"))))
			r.ContentLength = announced
			if _, err := Read(httptest.NewRecorder(), r, int64(size)); !errors.Is(err, ErrTooLong) {
				t.Errorf("%d bytes with a limit of %d: %v", size+1, size, err)
			}
			r = httptest.NewRequest("POST", "/", io.MultiReader(bytes.NewReader(want), iotest.ErrReader(io.ErrUnexpectedEOF)))
			if _, err := Read(httptest.NewRecorder(), r, int64(size)+1); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("a body that broke off after %d bytes: %v", size, err)
			}
		}
	}
}

// TestMemory: a body takes its length, and one that was announced takes none before it
// comes.
func TestMemory(t *testing.T) {
	text := bytes.Repeat([]byte("x"), 4<<20)
	took := func(body io.Reader) float64 {
		r := httptest.NewRequest("POST", "/", body)
		r.ContentLength = int64(len(text))
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Read(w, r, 8<<20) // an empty one breaks off
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(len(text))
	}
	if n := took(bytes.NewReader(text)); n > 1.2 {
		t.Errorf("it took %.1f times its length", n)
	}
	if n := took(bytes.NewReader(text[:1])); n > 0.1 {
		t.Errorf("one that was announced took %.1f times its length", n)
	}
}
