package prefer

import (
	"net/http"
	"testing"
	"time"
)

func TestWait(t *testing.T) {
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
		{[]string{"wait=4294967295"}, maxWait},
		{[]string{"await=5"}, 0},
	} {
		if got := Wait(http.Header{"Prefer": c.fields}); got != c.want {
			t.Errorf("%q is %v, not %v", c.fields, got, c.want)
		}
	}
}

func TestApplied(t *testing.T) {
	for wait, want := range map[time.Duration]string{0: "", -time.Second: "", time.Second: "wait=1", 90 * time.Second: "wait=90"} {
		if got := Applied(wait); got != want {
			t.Errorf("%v is %q, not %q", wait, got, want)
		}
	}
}
