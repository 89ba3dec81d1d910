package frameworktest

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
)

// Want is what a call that comes three times leads to.
type Want struct {
	First, Again string // the answers, as say has them; in a transaction only a success counts
	Rows, Told   int    // Told is not looked at in a transaction
}

// Thrice sends a call to a handler three times, one after the other. say shortens an answer.
func (s *Service) Thrice(t testing.TB, h http.Handler, want Want, say func(Answer) string) {
	t.Helper()
	tx := s.Route.Tx != nil
	url, key := s.Serve(h), rand.Text()
	for i, answer := range []string{want.First, want.Again, want.Again} {
		got := say(s.Post(t.Context(), url, Make, key))
		if !tx && got != answer || tx && strings.HasPrefix(got, "2") && want.Rows == 0 {
			t.Errorf("in a transaction: %t: delivery %d got %q, want %q", tx, i+1, got, answer)
		}
	}
	if n := s.Rows(key); n != want.Rows {
		t.Errorf("in a transaction: %t: %d rows, want %d", tx, n, want.Rows)
	}
	if told := s.Told(); !tx && len(told) != want.Told {
		t.Errorf("told of %v", told)
	}
}
