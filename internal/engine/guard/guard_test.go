package guard

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestAPanicIsAnErrorWithItsPlace(t *testing.T) {
	err := Call("the reconciler", func() error { panic("no") })
	if err == nil || !strings.HasPrefix(err.Error(), "the reconciler panicked at guard_test.go:") || !strings.HasSuffix(err.Error(), ": no") {
		t.Error(err)
	}
	want := errors.New("an error")
	if err := Call("it", func() error { return want }); err != want {
		t.Error(err)
	}
}

func TestASilentCallIsTheOnlyOne(t *testing.T) {
	var s Single
	ctx, cancel := context.WithCancel(t.Context())
	called, goOn := make(chan bool), make(chan bool)
	first := make(chan error)
	go func() {
		first <- s.Do(ctx, func(context.Context) error { close(called); <-goOn; return nil })
	}()
	<-called
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first ended with %v", err)
	}
	if err := s.Do(t.Context(), func(context.Context) error { return nil }); err != errSilent {
		t.Errorf("another call got %v", err)
	}
	close(goOn)
	for {
		if err := s.Do(t.Context(), func(context.Context) error { return nil }); err == nil {
			break
		}
	}
}
