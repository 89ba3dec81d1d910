package seldom

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestTeller: the first of a kind is told at once, the others together, and after a pause the
// next is a first one again.
func TestTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		teller := New(time.Minute, func(newest string, count int) { told = append(told, fmt.Sprint(newest, " ", count)) })
		comes := func(kind, event string) {
			if teller.First(kind, event) {
				told = append(told, event)
			}
		}
		for n := range 150 { // one in 1.1 seconds, so that none comes when a minute ends
			comes("pay", fmt.Sprint("pay-", n))
			if n == 10 {
				comes("order", "order-1")
			}
			<-time.After(1100 * time.Millisecond)
		}
		<-time.After(3 * time.Minute)
		synctest.Wait()
		if len(teller.open) > 0 {
			t.Errorf("it remembers %v", teller.open)
		}
		comes("pay", "pay-150")
		if want := []string{"pay-0", "order-1", "pay-54 54", "pay-109 55", "pay-149 40", "pay-150"}; !slices.Equal(told, want) {
			t.Errorf("told were %q, want %q", told, want)
		}
		<-time.After(2 * time.Minute)
	})
}
