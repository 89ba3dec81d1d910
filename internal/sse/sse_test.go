package sse

import (
	"net/http/httptest"
	"testing"
)

func TestCut(t *testing.T) {
	for _, c := range []struct{ text, event, data, rest string }{
		{"data: 1\n\ndata: 2\n\n", "data: 1\n\n", "1", "data: 2\n\n"},
		{"data:1\r\n\r\n", "data:1\r\n\r\n", "1", ""},
		{"event: x\ndata: a\ndata: b\n\n", "event: x\ndata: a\ndata: b\n\n", "a\nb", ""},
		{"data:  a\n\n", "data:  a\n\n", " a", ""},
		{": alive\n\n", ": alive\n\n", "", ""},
		{"data: 1\n", "", "", "data: 1\n"},
		{"data: 1\r\n\r", "", "", "data: 1\r\n\r"},
		{"", "", "", ""},
	} {
		event, rest, whole := Cut([]byte(c.text))
		if string(event) != c.event || string(rest) != c.rest || whole != (c.event != "") || string(Data(event)) != c.data {
			t.Errorf("%q: %q, %q, data %q", c.text, event, rest, Data(event))
		}
	}
	if Data([]byte(": alive\n\n")) != nil {
		t.Error("a comment has data")
	}
}

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, JSON([]byte("{\n\"a\":\r\n\"b\\n\"}")))
	if got := w.Body.String(); got != "data: { \"a\":  \"b\\n\"}\n\n" || !w.Flushed {
		t.Errorf("%q", got)
	}
}
