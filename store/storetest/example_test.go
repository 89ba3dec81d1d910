package storetest_test

import (
	"testing"

	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest"
)

// The test of a store that keeps its records in this process. One that keeps them
// elsewhere gives Reopen too, and has a [storetest.Harness] of its own if its clock is
// that of a server.
func ExampleRun() {
	testContract := func(t *testing.T) {
		storetest.Run(t, storetest.Virtual("memstore", func(t *testing.T) storetest.Env {
			s := memstore.New()
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return storetest.Env{Store: s}
		}))
	}
	_ = testContract
}
