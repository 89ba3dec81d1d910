//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// tb lets the servers for tests run outside of a test: a failure panics, and try turns it
// into an error.
type tb struct {
	testing.TB // for what servers don't call
	ctx        context.Context
	dir        string
	env        []string

	mu       sync.Mutex
	cleanups []func()
}

// failure is the panic of a tb.
type failure struct{ error }

// ErrMissing means that there was no run, because a program that it needs isn't installed.
var ErrMissing = errors.New("something that the run needs is not installed")

func (t *tb) Helper()                  {}
func (t *tb) Log(...any)               {}
func (t *tb) Logf(string, ...any)      {}
func (t *tb) Context() context.Context { return t.ctx }
func (t *tb) Environ() []string        { return t.env }
func (t *tb) Fatal(args ...any)        { panic(failure{errors.New(fmt.Sprint(args...))}) }
func (t *tb) Error(args ...any)        { t.Fatal(args...) }

func (t *tb) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
func (t *tb) Errorf(format string, args ...any) { t.Fatalf(format, args...) }
func (t *tb) Skipf(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", ErrMissing, fmt.Sprintf(format, args...))})
}

func (t *tb) TempDir() string {
	dir, err := os.MkdirTemp(t.dir, "server")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (t *tb) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// try runs a function whose tb may fail, and returns the failure as an error.
func try(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// close runs the cleanups, the last first.
func (t *tb) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		errs = append(errs, try(t.cleanups[i]))
	}
	t.cleanups = nil
	return errors.Join(errs...)
}

// requireEnv, set to 1, makes it a failure that something is not installed.
const requireEnv = "SEMEL_REQUIRE_SERVICES"
