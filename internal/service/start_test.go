package service_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// TestAStartMakesNoHandlersOfTheAPI counts what a start allocates instead of its time, which
// depends on the machine. The handlers of the API and their description, with the schemas of
// all endpoints, are 100,000 allocations and more; they are made beside the start.
func TestAStartMakesNoHandlersOfTheAPI(t *testing.T) {
	cfg, _, err := config.Load(config.Source{
		Env:   func(string) (string, bool) { return "", false },
		Flags: map[string]string{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "store": "memory:"},
	})
	if err != nil {
		t.Fatal(err)
	}
	least := ^uint64(0) // what else the process does at the same time counts too
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := service.New(t.Context(), service.Options{Config: cfg, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d allocations", least)
	if least > 20_000 {
		t.Errorf("a start makes %d allocations", least)
	}
}
