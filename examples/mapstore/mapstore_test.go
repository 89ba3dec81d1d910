package mapstore_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/semelhq/semel/examples/mapstore"
	"github.com/semelhq/semel/store/storetest"
)

// snippet: Contract

func TestContract(t *testing.T) {
	storetest.Run(t, storetest.Virtual("mapstore", func(t *testing.T) storetest.Env {
		s := mapstore.New()
		t.Cleanup(func() { _ = s.Close() })
		return storetest.Env{Store: s}
	}))
}

// end snippet

// TestSize keeps the example one that you read in a few minutes.
func TestSize(t *testing.T) {
	src, err := os.ReadFile("mapstore.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(src, []byte("\n")); lines >= 150 {
		t.Errorf("the store has %d lines, want fewer than 150", lines)
	}
}
