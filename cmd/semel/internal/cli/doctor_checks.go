package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

// config checks a configuration as config validate does, and reports whether it is valid.
func (r *doctorReport) config(cfg *config.Config, origins *config.Origins, err error, file string) (valid bool) {
	if err == nil {
		err = blame(service.Check(cfg), origins)
	}
	if err != nil {
		next := strings.TrimSpace("semel config validate " + file)
		if strings.HasPrefix(err.Error(), "flag ") {
			next = "" // no other command has that flag
		}
		r.add("config", "failed", err.Error(), next)
		return false
	}
	for _, w := range cfg.Warnings() {
		r.add("config", "warning", w, "semel config explain"+(&recordSource{config: file}).flags())
	}
	r.add("config", "ok", cmp.Or(file, "the default configuration")+" is valid", "")
	return true
}

// service checks a running service. If it doesn't answer, that is the only finding.
func (r *doctorReport) service(ctx context.Context, s *admin.Service) error {
	checks, err := s.Ready(ctx)
	if _, other := errors.AsType[*client.AnswerError](err); other {
		return exitWith(err)
	}
	if err != nil {
		r.add("service", "failed", s.URL()+": "+strings.TrimPrefix(err.Error(), "semel: "), "semel serve")
		return nil
	}
	r.add("service", "ok", s.URL()+" answers", "")
	_, err = s.Figures(ctx, 5*time.Minute)
	entitled := err == nil
	e, ok := errors.AsType[*semel.Error](err)
	switch _, open := s.Anonymous().Figures(ctx, 5*time.Minute); {
	case ok && (e.Code == door.CodeUnauthorized || e.Code == semel.CodeForbidden):
		r.add("access", "warning", e.Message+"; without it the checks show little", "semel doctor"+r.withToken(s.URL()))
	case !entitled:
		r.add("access", "failed", err.Error(), r.next(""))
	case open == nil:
		r.add("access", "warning", "no operator is named, so every program on that machine is an admin: set admin.token_file, or give a caller in auth a role", "semel config explain admin.token_file")
	default:
		r.add("access", "ok", "operators need a credential, and this one is accepted", "")
	}
	for _, c := range checks {
		if c.Mark != '+' && c.Detail == "" && !entitled {
			c.Detail = "only callers with a role see why"
		}
		r.add(c.Name, map[byte]string{'+': "ok", '!': "warning", '-': "failed"}[c.Mark], c.Detail, r.next(c.Name))
	}
	return nil
}

// namesToken matches the flags that choose a token.
var namesToken = regexp.MustCompile(` --(token-file|context) \S+`)

// withToken returns the flags of the command with another token.
func (r *doctorReport) withToken(url string) string {
	where := namesToken.ReplaceAllString(r.where, "")
	if where == "" && r.where != "" {
		where = " --url " + url
	}
	return where + " --token-file FILE"
}

// store opens the store of a configuration, and checks it as readiness would.
func (r *doctorReport) store(ctx context.Context, cfg *config.Config) {
	if dir, embedded := strings.CutPrefix(cfg.Store.URL, "pebble:"); embedded {
		if names, err := os.ReadDir(dir); errors.Is(err, os.ErrNotExist) || err == nil && len(names) == 0 {
			r.add("store", "warning", "there is none in "+dir+" yet: the first start makes it", "semel serve"+r.stored)
			return
		}
	} else if cfg.Store.URL == "memory:" {
		next := "semel config explain" + r.stored + " store.url"
		if strings.HasPrefix(r.stored, " --store ") {
			next = "" // the configuration doesn't say so
		}
		r.add("store", "warning", "it is in memory: every record is lost when the service stops", next)
		return
	}
	i, err := service.Inspect(ctx, cfg)
	if err != nil {
		r.add("store", "failed", inUse(err, cfg.Store.URL, true).Error(), r.remedy("store", err))
		return
	}
	for _, f := range i.Findings(ctx) {
		switch {
		case f.Err != nil:
			r.add(f.Name, "failed", f.Err.Error(), r.remedy(f.Name, f.Err))
		case f.Amiss:
			r.add(f.Name, "warning", f.Detail, r.remedy(f.Name, nil))
		default:
			r.add(f.Name, "ok", f.Detail, "")
		}
	}
	if err := i.Close(); err != nil {
		r.add("store", "failed", "closing it: "+err.Error(), r.remedy("store", err))
	}
}

// remedy is the next command for a store without a service.
func (r *doctorReport) remedy(check string, err error) string {
	switch {
	case errors.Is(err, pgstore.ErrNotMigrated):
		return "semel migrate up" + r.stored
	case errors.Is(err, pgstore.ErrRights): // the error has the statements
		return "semel migrate print --role ROLE | psql"
	case errors.Is(err, redisstore.ErrRights): // the error names the commands
		return "redis-cli ACL SETUSER USER +COMMAND"
	case errors.Is(err, pgstore.ErrNewer):
		return "semel version"
	case check == "store", check == "durability", check == "writes":
		return "semel store status" + r.stored
	}
	return r.next(check)
}

// next is the command to type if a check of readiness isn't ok.
func (r *doctorReport) next(check string) string {
	switch check {
	case "clock":
		return "date; semel store accept-clock" + r.where + " --yes"
	case "disk":
		return "df -h"
	case "held":
		return "semel records list" + r.where + " held -unverified"
	case "evidence":
		return "semel evidence verify" + r.where + " --keys evidence.pub"
	}
	return "semel healthcheck" + r.where
}
