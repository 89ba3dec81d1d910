package memstore_test

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, storetest.Virtual("memstore", func(t *testing.T) storetest.Env {
		s := memstore.New()
		t.Cleanup(func() { _ = s.Close() })
		return storetest.Env{Store: s}
	}))
}

func BenchmarkEngine(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) semel.Store {
		s := memstore.New()
		b.Cleanup(func() { _ = s.Close() })
		return s
	})
}
