package cli

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/semel/internal/doctor"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

func newDoctor() *cobra.Command {
	var src recordSource
	var timeout time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation, and say what to do next",
		Long: `Check an installation, and say what to do next: a line for each check, ok, warning or
failed, with a command to type where somebody has something to do. Nothing is changed.

With --url, --context, SEMEL_URL or a current context a running service is checked:
that it answers, who may do what, what it finds of itself (store, durability, clock,
writes, disk, evidence, sweeps, keys of issuers), held calls, parked messages, and its
version. Otherwise the configuration is: --config FILE, or what a service without a file
has. That is the file and all files that it names, the addresses of the listeners, and the
service that runs on it; or, if none does, its store, opened for reading: settings,
schema and rights, clock, free disk, the newest checkpoint of the evidence log against its
keys and against what was signed last, held calls and parked messages.

The exit code is 0 if nothing has failed, although there may be warnings, and 1 if
something has.

The JSON has healthy, warnings, failed (numbers), and findings: a list with check, status,
detail and next.`,
		Example: `  semel doctor
  semel doctor --config semel.yaml
  semel doctor --context prod --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			ctx, stop := patient(ctx, cmd.ErrOrStderr(), isTerminal(cmd.ErrOrStderr()))
			defer stop()
			findings, err := examine(ctx, cmd, &src)
			if err != nil {
				return err
			}
			report := doctor.ReportOf(findings)
			out := cmd.OutOrStdout()
			if asJSON {
				err = printJSON(out, report)
			} else {
				err = report.Print(out)
			}
			if err == nil && !report.Healthy {
				err = errReported
			}
			return err
		},
	}
	flags := cmd.Flags()
	src.add(flags)
	flags.DurationVar(&timeout, "timeout", time.Minute, "how long all checks may take")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// examine checks a service, or a configuration and what runs on it.
func examine(ctx context.Context, cmd *cobra.Command, src *recordSource) ([]doctor.Finding, error) {
	at, tokenFile, err := src.where()
	if err != nil {
		return nil, err
	}
	if at != "" {
		asked, err := src.toAsk(at, tokenFile)
		if err != nil {
			return nil, err
		}
		return asked.Findings(ctx), nil
	}
	cfg, origins, err := loadConfig(cmd, src.config)
	if _, wrong := errors.AsType[config.Errors](err); err != nil && !wrong {
		return nil, err
	}
	c := &doctor.Configured{Config: cfg, Origins: origins, Err: err, Name: inputName(src.config), Where: src.flags()}
	if src.config == "" {
		c.Name = ""
	}
	if cfg == nil || err != nil {
		c.Config = nil
		return c.Findings(ctx), nil
	}
	if src.store != "" {
		cfg.Store.URL = src.store
	}
	c.InUse = func(err error) error { return inUse(err, cfg.Store.URL, true) }
	c.Records = func(i *service.Inspection) client.Records { return i.Engine() }
	asked, err := src.beside(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if asked != nil {
		c.Running = true
		c.Elsewhere = asked.Service.URL() != adminURL(cfg)
	}
	findings := c.Findings(ctx)
	if asked != nil {
		findings = append(findings, asked.Findings(ctx)...)
	}
	return findings, nil
}

// beside is the service that runs with the configuration that the flags name; nil if nobody
// answers there.
func (src *recordSource) beside(ctx context.Context, cmd *cobra.Command) (*doctor.Asked, error) {
	at, err := src.nearby(cmd)
	if err != nil {
		return nil, err
	}
	asked, err := src.toAsk(at, src.tokenFile)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := asked.Service.Ready(ctx); err == nil {
		return asked, nil
	}
	return nil, nil
}

// toAsk is the service at a URL.
func (src *recordSource) toAsk(at, tokenFile string) (*doctor.Asked, error) {
	service, err := asked(at, tokenFile)
	if err != nil {
		return nil, err
	}
	records, err := src.ask(at, tokenFile)
	if err != nil {
		return nil, err
	}
	return &doctor.Asked{Service: service, Records: records, Where: src.flags(), Version: strings.TrimSpace(buildVersion(debug.ReadBuildInfo()).Version)}, nil
}
