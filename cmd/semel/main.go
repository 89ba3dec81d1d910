// Command semel is the command line of Semel: the service, the work of operators on it, and the demo.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/semelhq/semel/cmd/semel/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second interrupt ends the process at once.
	context.AfterFunc(ctx, stop)
	code := cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
