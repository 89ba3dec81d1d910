package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// Child says which of the demo's servers a process is.
type Child struct {
	// Role is "provider" or "worker".
	Role string
	// Seed is that of the provider's delays.
	Seed uint64
	// Provider is the URL of the payment service that the worker stands before,
	// Dir the directory of the worker's store.
	Provider, Dir string
	// Unguarded takes the worker's guard away.
	Unguarded bool
}

// Serve runs a server of the demo until stdin ends or ctx is done, and announces
// it on stdout. An interrupt of the terminal is left to the parent, which ends
// its children.
func (c Child) Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	signal.Ignore(os.Interrupt)
	switch c.Role {
	case "provider":
		return serve(ctx, newProvider(c.Seed), stdin, stdout)
	case "worker":
		return runWorker(ctx, c, stdin, stdout)
	}
	return fmt.Errorf("the demo has no %q", c.Role)
}
