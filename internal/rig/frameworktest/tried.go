package frameworktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
)

// Tried is what came of one row of the table: what clients got, in the order of the
// deliveries, and what the database has.
type Tried struct{ Storm, Fail, Panic, HangUp string }

// Try tries a framework at an address: 20 duplicates at once; an error after the row, and the
// same again; a panic after the row, and the same again; and a client that hangs up after the
// row, and the same again.
func (s *Service) Try(url string) Tried {
	s.t.Helper()
	return Tried{Storm: s.storm(url), Fail: s.twice(url, Fail), Panic: s.twice(url, Panic), HangUp: s.hangUp(url)}
}

// storm sends a call 20 times at once.
func (s *Service) storm(url string) string {
	s.t.Helper()
	key := rand.Text()
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range 20 {
		wg.Go(func() {
			a := s.Post(s.t.Context(), url, Make, key)
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprintf("%d %s", a.Status, a.Body)]++
		})
	}
	wg.Wait()
	if len(got) != 1 {
		s.t.Errorf("20 at once got %v", got)
	}
	for answer, n := range got {
		status, _, _ := strings.Cut(answer, " ")
		return fmt.Sprintf("%d × %s, %s", n, status, s.left(key))
	}
	return ""
}

// twice sends a call, and again.
func (s *Service) twice(url, do string) string {
	s.t.Helper()
	key := rand.Text()
	first := s.Post(s.t.Context(), url, do, key)
	return said(first) + ", then " + s.again(url, do, key)
}

// again sends a call again: the answer may be another one, but a replay stays the same.
func (s *Service) again(url, do, key string) string {
	s.t.Helper()
	second := s.Post(s.t.Context(), url, do, key)
	if third := s.Post(s.t.Context(), url, do, key); third.Status != second.Status || second.Replayed && third.Body != second.Body {
		s.t.Errorf("%s: the second got %+v, the third %+v", key, second, third)
	}
	return said(second) + ", " + s.left(key)
}

// hangUp sends a call, hangs up when its handler has made the row, and sends it again.
func (s *Service) hangUp(url string) string {
	s.t.Helper()
	key := rand.Text()
	made := make(chan struct{})
	s.mu.Lock()
	s.made[key], s.gone[key] = made, make(chan struct{})
	s.mu.Unlock()
	ctx, hangUp := context.WithCancel(s.t.Context())
	defer hangUp()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.post(ctx, url, HangUp, key)
	}()
	select {
	case <-made:
	case <-over:
		s.t.Errorf("%s: the handler hasn't waited", key)
	}
	hangUp()
	<-over
	if s.Native {
		s.hungUp(key) // the server looks at connections only between requests
	}
	answer := s.again(url, HangUp, key)
	if n := s.Runs(key); n != 1 {
		s.t.Errorf("%s: ran %d times", key, n)
	}
	return answer
}

func said(a Answer) string {
	if a.Status == 0 {
		return "no answer"
	}
	return fmt.Sprint(a.Status)
}

// left says what the database has of a key.
func (s *Service) left(key string) string {
	s.t.Helper()
	switch n := s.Rows(key); n {
	case 0:
		return "no row"
	case 1:
		return "1 row"
	default:
		return fmt.Sprintf("%d rows", n)
	}
}
