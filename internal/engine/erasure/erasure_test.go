package erasure

import (
	"bytes"
	"testing"
	"time"

	"github.com/semelhq/semel/store"
)

var now = store.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func id(key string) store.ID { return store.ID{Operation: "op", Key: key} }

func secret(id store.ID) (d store.Subject) { copy(d[:], "secret "+id.Key); return d }

func TestAListKeepsItsFormAndNoNames(t *testing.T) {
	l, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Add(nil, id("plain"), now)
	l.Add(secret, id("blind"), now)
	data := l.Encode()
	if len(data) != head+2*size || data[0] != form || bytes.Contains(data, []byte("plain")) {
		t.Errorf("%q", data)
	}
	got, err := Parse(data)
	if err != nil || !bytes.Equal(got.Encode(), data) {
		t.Errorf("%v, %q", err, got.Encode())
	}
	for _, other := range [][]byte{{2}, data[:len(data)-1], append([]byte{form + 1}, data[1:]...)} {
		if _, err := Parse(other); err == nil {
			t.Errorf("%d bytes of the form %d pass", len(other), other[0])
		}
	}
}

func TestAnErasureIsListedForItsTime(t *testing.T) {
	l, _ := Parse(nil)
	l.Add(nil, id("a"), now)
	l.Add(secret, id("b"), now)
	for key, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if got := l.Lists(secret, id(key), now.Add(For-1)); got != want {
			t.Errorf("%s is listed: %v", key, got)
		}
	}
	if l.Lists(nil, id("b"), now) || l.Lists(secret, id("a"), now.Add(For)) {
		t.Error("listed without the secret, or for too long")
	}
	for range most {
		l.Add(nil, id(time.Duration(len(l.list)).String()), now.Add(time.Second))
	}
	if l.Lists(nil, id("a"), now) || l.Missing != now {
		t.Errorf("the oldest is still listed, or missing since %v", l.Missing)
	}
}

func TestInDoubtAnIdentityIsIncluded(t *testing.T) {
	l, _ := Parse(nil)
	l.Add(secret, id("blind"), now)
	l.Add(nil, id("plain"), now.Add(2*time.Second))
	knows, doesNot := l.Includes(secret, now), l.Includes(nil, now)
	for _, x := range []struct {
		key        string
		after      time.Duration
		with, sans bool
	}{
		{"blind", 0, true, true}, {"blind", 1, false, false}, {"plain", 2 * time.Second, true, true},
		{"other", 0, false, true}, {"other", time.Second, false, false},
	} {
		when := now.Add(x.after).Time()
		if got := knows(id(x.key), when); got != x.with {
			t.Errorf("%s after %v, with the secret: %v", x.key, x.after, got)
		}
		if got := doesNot(id(x.key), when); got != x.sans {
			t.Errorf("%s after %v, without it: %v", x.key, x.after, got)
		}
	}
	l.Missing = now
	if f := l.Includes(secret, now); !f(id("other"), now.Time()) || f(id("other"), now.Add(1).Time()) {
		t.Error("an erasure that is missing includes too little, or too much")
	}
}
