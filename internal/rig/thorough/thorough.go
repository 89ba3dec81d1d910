// Package thorough says how much of a long test to run. A contributor who waits for
// `make test` wants an answer within minutes; before a merge `make prove` sets
// SEMEL_THOROUGH=1, and the same tests take as long as they can use.
package thorough

import (
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// Run reports whether tests take as long as they can use.
func Run() bool { return os.Getenv("SEMEL_THOROUGH") == "1" }

// Seed is what a random test begins with: always the same, so that one change's tests can't
// fail for another's bad luck. A thorough run explores, and has a new one each time.
func Seed() uint64 {
	if Run() {
		return rand.Uint64()>>1 + 1
	}
	return 1
}

// Scaled is how many rounds of n to run: all of them in a thorough run, otherwise one in
// five, and one in twenty with -short or under the race detector, which makes each ten
// times as long. It is at least 1.
func Scaled(n int) int {
	switch {
	case testing.Short(), race():
		n /= 20
	case !Run():
		n /= 5
	}
	return max(n, 1)
}

// Only skips a test unless the run is a thorough one. why says what the test repeats in
// another setting, so that a reader knows what a quick run leaves out.
func Only(t testing.TB, why string) {
	t.Helper()
	if !Run() {
		t.Skip("left to make prove: " + why)
	}
}

// Alone skips a test under the race detector, which makes it ten times as long. The test
// has one goroutine, and so no races.
func Alone(t testing.TB) {
	t.Helper()
	if race() {
		t.Skip("left to make test: one goroutine has no races")
	}
}

func race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
