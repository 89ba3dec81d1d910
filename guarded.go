package semel

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// guarded calls f, in which the program's own functions run, and returns a panic of theirs
// as an error. In a goroutine of the engine it would end the process, and then, because
// the record is found again, each other process on the store. what is their name.
func guarded(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s panicked%s: %v", what, panicPlace(), v)
		}
	}()
	return f()
}

// panicPlace says where the code that is being recovered panicked; empty if that is not
// known. An error with the whole stack would fill logs, because it is repeated.
func panicPlace() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for panicking := false; ; {
		at, more := frames.Next()
		switch {
		case strings.HasPrefix(at.Function, "runtime."):
			panicking = panicking || at.Function == "runtime.gopanic"
		case panicking:
			return fmt.Sprintf(" at %s:%d", filepath.Base(at.File), at.Line)
		}
		if !more {
			return ""
		}
	}
}
