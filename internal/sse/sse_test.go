package sse

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		text   string
		events []string
		data   []string
	}{
		{"data: 1\n\ndata: 2\n\n", []string{"data: 1\n\n", "data: 2\n\n"}, []string{"1", "2"}},
		{"data:1\r\n\r\ndata:2\r\n\r\n", []string{"data:1\r\n\r\n", "data:2\r\n\r\n"}, []string{"1", "2"}},
		{"data:1\r\rdata:2\rdata:3\r\r", []string{"data:1\r\r", "data:2\rdata:3\r\r"}, []string{"1", "2\n3"}},
		{"data:1\r\ndata:2\n\r\n", []string{"data:1\r\ndata:2\n\r\n"}, []string{"1\n2"}},
		{"event: x\ndata: a\ndata: b\n\n", []string{"event: x\ndata: a\ndata: b\n\n"}, []string{"a\nb"}},
		{"data:  a\n\n", []string{"data:  a\n\n"}, []string{" a"}},
		{": alive\n\n", []string{": alive\n\n"}, []string{""}},
		{"data: 1\n", nil, nil},
		{"data: 1\r\n", nil, nil},
		{"", nil, nil},
	} {
		for _, size := range []int{1, 2, 3, max(len(c.text), 4)} {
			var b Buffer
			var events, data []string
			for part := range slices.Chunk([]byte(c.text), size) {
				b.Write(part)
				for event := b.Event(); event != nil; event = b.Event() {
					events, data = append(events, string(event)), append(data, string(Data(event)))
				}
			}
			// Where a CR ends an event, the LF that comes later is an empty line before the next.
			if whole := size >= len(c.text); whole && !slices.Equal(events, c.events) || !slices.Equal(data, c.data) ||
				strings.Join(events, "")+b.String() != c.text {
				t.Errorf("%q, %d at a time: %q, data %q, and left is %q", c.text, size, events, data, b.String())
			}
		}
	}
	if Data([]byte(": alive\n\n")) != nil {
		t.Error("a comment has data")
	}
}

// What has come of an event isn't looked at again when more comes, however long it gets.
func TestEachByteIsLookedAtOnce(t *testing.T) {
	for _, line := range []string{"data", "data: x\n", "data: x\r", "data: x\r\n"} {
		var b Buffer
		for range 1000 {
			b.WriteString(line)
			if event := b.Event(); event != nil || b.Len()-b.seen > len("\r\n") {
				t.Fatalf("%q: the event %q, and %d of %d bytes will be looked at again", line, event, b.Len()-b.seen, b.Len())
			}
		}
	}
}

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, JSON([]byte("{\n\"a\":\r\n\"b\\n\"}")))
	if got := w.Body.String(); got != "data: { \"a\":  \"b\\n\"}\n\n" || !w.Flushed {
		t.Errorf("%q", got)
	}
}
