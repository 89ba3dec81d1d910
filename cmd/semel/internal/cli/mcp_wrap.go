package cli

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/stdio"
)

const mcpWrapLong = `Guard the tools of a server that speaks MCP over its standard input and output. Semel starts
the program, and takes its place: in the settings of a host, write this command in front of
the server's own. With --listen it offers the server over HTTP instead, to any number of
clients, which the program sees as one.

Each tool call reaches the program once, as with 'semel mcp', whose flags these are. If the
program dies, the outcome of what was under way is unknown, and it is started again for what
comes; so it is if it is silent about a request for --timeout. What it prints that is no
message goes to standard error, with its own errors and Semel's log.

Calls are known after a restart by what --store keeps. A host may start several servers, and
in any directory: give each an absolute path of its own, such as pebble:/var/lib/semel/shop.`

func newMCPWrap() *cobra.Command {
	f := mcpFlags{door: config.Defaults[config.MCP]()}
	cmd := &cobra.Command{
		Use:   "wrap [flags] -- COMMAND [ARG]...",
		Short: "Guard the tools of an MCP server that is started here",
		Long:  mcpWrapLong,
		Example: `  semel mcp wrap --store pebble:/var/lib/semel/shop -- shop-server --stdio
  semel mcp wrap --listen 127.0.0.1:8480 --key refund=/order_id -- npx -y shop-server`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("which server? Give its command after --, such as: semel mcp wrap -- npx -y shop-server")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.wrap(cmd, args) },
	}
	f.register(cmd.Flags())
	listen := cmd.Flags().Lookup("listen")
	f.listen, listen.DefValue, listen.Usage = "", "", "`address` for requests over HTTP, and not by standard input"
	cmd.Flags().SetInterspersed(false) // what follows the command is the command's
	return jsonFlag(cmd)
}

// wrapExtra is how much longer than the program's own time the gateway waits: it hears of a program
// that was killed because it is silent.
const wrapExtra = 10 * time.Second

func (f *mcpFlags) wrap(cmd *cobra.Command, command []string) error {
	bridged := f.listen == ""
	if bridged {
		f.listen, f.door.Path = "127.0.0.1:0", "/"+rand.Text()
	}
	child := &stdio.Child{Command: command, Stderr: cmd.ErrOrStderr(), Timeout: time.Duration(f.door.Timeout), Bridged: bridged}
	defer child.Close()
	endpoint, err := child.Listen()
	if err != nil {
		return err
	}
	f.door.Upstream, f.door.Timeout = endpoint, f.door.Timeout+config.Duration(wrapExtra)
	if err := f.settings(); err != nil {
		return err
	}
	servers := config.Servers{MCP: []config.MCP{f.door}}
	if !bridged {
		return f.guard(cmd, strings.Join(command, " "), f.door.Path, f.op, nil, servers)
	}
	cfg, err := f.configuration(cmd, f.op, nil, servers)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	return serve(ctx, cmd.ErrOrStderr(), service.Options{Config: cfg}, func(s *service.Server) error {
		b := &stdio.Bridge{Endpoint: "http://" + s.DataAddr().String() + f.door.Path, Out: cmd.OutOrStdout()}
		go func() {
			_ = b.Run(ctx, cmd.InOrStdin()) // a host that is gone needs no word
			cancel()
		}()
		return nil
	})
}
