package cli

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/internal/service/config"
)

const mcpLong = `Guard the tools of one server that speaks MCP over Streamable HTTP: each tool call reaches
it once, however often a client or an agent repeats it. The server and its clients stay as
they are. Only tools/call is guarded; everything else passes.

A repetition is recognised by the key of the call, if it has one, by the arguments that
--key names for its tool, or else, for --echo, because the answer to the same call of the
same caller never arrived. For tools whose repetition is always recognised, Semel sets
idempotentHint in tools/list, so that clients may repeat their calls by themselves. It does
so only if calls stay known for at least 90 days, by --remember.

If the server got a call and never answered, Semel can't know whether it was carried out:
the call is held, and the model is told how to find out. See 'semel proxy' for what
--answers, --on-abandoned, --reconcile and the flags about callers and operators mean.

The first line of the output names the address. With --json it is
{"listen":"HOST:PORT","url":"http://HOST:PORT/mcp","admin":"HOST:PORT","admin_url":…}.
Port 0 picks a free port. For more than one server, or a policy for each tool, see the
section mcp of 'semel serve'.`

func newMCP() *cobra.Command {
	f := mcpFlags{door: config.Defaults[config.MCP]()}
	cmd := &cobra.Command{
		Use:   "mcp URL",
		Short: "Guard the tools of one MCP server",
		Long:  mcpLong,
		Example: `  semel mcp http://127.0.0.1:3000/mcp
  semel mcp http://127.0.0.1:3000/mcp --key refund=/order_id,/amount --read-only search
  semel mcp https://tools.example.com/mcp --listen 127.0.0.1:0 --store memory: --json`,
		Args: oneArg("which server? Give the URL of its endpoint, such as http://127.0.0.1:3000/mcp"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if u, err := url.Parse(args[0]); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return usage("%q is not an http or https URL such as http://127.0.0.1:3000/mcp", args[0])
			}
			f.door.Upstream = args[0]
			if err := f.settings(); err != nil {
				return err
			}
			return f.guard(cmd, args[0], f.door.Path, f.op, nil, config.Servers{MCP: []config.MCP{f.door}})
		},
	}
	f.register(cmd.Flags())
	cmd.AddCommand(newMCPWrap())
	return jsonFlag(cmd)
}

// mcpFlags are the settings of the one operation and the one server that 'semel mcp' has.
type mcpFlags struct {
	upstreamFlags
	door           config.MCP
	keys, readOnly []string
}

func (f *mcpFlags) register(flags *pflag.FlagSet) {
	op, door := &f.op, &f.door
	f.upstreamFlags.register(flags, &door.Callers, &door.MaxBody)
	flags.StringVar(&door.Path, "path", "/mcp", "`path` of the server")
	flags.StringArrayVar(&f.keys, "key", nil, "arguments that tell a tool's calls apart: `TOOL=/POINTER,…`")
	flags.StringSliceVar(&f.readOnly, "read-only", nil, "`tools` that change nothing; their calls pass")
	flags.BoolVar(&door.TrustHints, "trust-hints", false, "let calls pass of tools that the server calls read-only")
	flags.DurationVar((*time.Duration)(&door.Echo), "echo", mcp.DefaultEcho, "for how long a lost call without a key is known")
	op.Window, op.Remember = config.Duration(semel.DefaultWindow), config.Duration(mcp.HintWindow)
	flags.Var(spanFlag{&op.Window}, "window", "how long answers are kept")
	flags.Var(spanFlag{&op.Remember}, "remember", "how long calls stay known")
	flags.StringSliceVar(&door.Origins, "origin", nil, "`origin` of pages that may use the server")
	flags.DurationVar((*time.Duration)(&door.Timeout), "timeout", mcp.DefaultTimeout, "how long a tool may be silent")
}

// settings completes the operation and the server by what the flags say of tools.
func (f *mcpFlags) settings() error {
	f.op.Name, f.door.Operation = mcp.Name, mcp.Name
	tool := func(name string) *config.MCPTool {
		i := slices.IndexFunc(f.door.Tools, func(t config.MCPTool) bool { return t.Name == name })
		if i < 0 {
			t := config.Defaults[config.MCPTool]()
			t.Name = name
			i, f.door.Tools = len(f.door.Tools), append(f.door.Tools, t)
		}
		return &f.door.Tools[i]
	}
	for _, text := range f.keys {
		name, pointers, ok := strings.Cut(text, "=")
		if !ok || name == "" || !strings.HasPrefix(pointers, "/") {
			return usage("--key %q isn't TOOL=/POINTER, such as refund=/order_id,/amount", text)
		}
		tool(name).KeyFields = strings.Split(pointers, ",")
	}
	for _, name := range f.readOnly {
		tool(name).ReadOnly = true
	}
	return f.meanings(&f.door.Answers)
}
