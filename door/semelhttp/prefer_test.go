package semelhttp

import (
	"net/http"
	"testing"
	"time"
)

func TestPreferredWait(t *testing.T) {
	for _, c := range []struct {
		fields []string
		want   time.Duration
	}{
		{nil, 0},
		{[]string{"wait=5"}, 5 * time.Second},
		{[]string{"respond-async, WAIT = 5"}, 5 * time.Second},
		{[]string{`wait="5"; foo=bar`}, 5 * time.Second},
		{[]string{"return=minimal", "wait=5", "wait=9"}, 5 * time.Second},
		{[]string{"wait"}, 0},
		{[]string{"wait=-5"}, 0},
		{[]string{"wait=soon, wait=5"}, 0},
		{[]string{"wait=99999999999"}, 0},
		{[]string{"wait=4294967295"}, maxPreferredWait},
		{[]string{"await=5"}, 0},
	} {
		if got := PreferredWait(http.Header{"Prefer": c.fields}); got != c.want {
			t.Errorf("%q is %v, not %v", c.fields, got, c.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1", time.Millisecond: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90",
	} {
		if got := seconds(d); got != want {
			t.Errorf("%v is %s, not %s", d, got, want)
		}
	}
}
