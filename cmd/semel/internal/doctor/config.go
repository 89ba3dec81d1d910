package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

// dialTime bounds one look at an address.
const dialTime = 2 * time.Second

// Configured is an installation as its configuration has it.
type Configured struct {
	// Config is nil if it can't be read, for Err. Origins says where settings come from.
	Config  *config.Config
	Origins *config.Origins
	Err     error
	// Name is how the configuration is called: its file.
	Name string
	// Where are the flags by which commands find it, with a space in front.
	Where string
	// Running is set if a service runs on it, and Elsewhere if that one doesn't listen at
	// the admin address of the configuration: then it was started with other settings.
	Running, Elsewhere bool
	// InUse explains the error of opening a store that a process has open.
	InUse func(err error) error
	// Records are those of a store that is open for reading.
	Records func(i *service.Inspection) client.Records
}

// Findings are those of the configuration and, if no service runs on it, of its store.
func (c *Configured) Findings(ctx context.Context) []Finding {
	all := c.config()
	if c.Config == nil {
		return all
	}
	all = append(all, c.operators()...)
	all = append(all, c.secrets(), c.listener("listen.address", c.Config.Listen.Address), c.listener("admin.address", c.Config.Admin.Address))
	if !c.Running {
		all = append(all, c.store(ctx)...)
	}
	return all
}

// config are the mistakes in the file, and in those that it names.
func (c *Configured) config() (all []Finding) {
	err := c.Err
	if c.Config != nil {
		err = service.Check(c.Config)
		if errs := service.Blame(err, c.Origins); errs != nil {
			err = errs
		}
	}
	if errs, ok := errors.AsType[config.Errors](err); ok {
		for _, e := range errs {
			all = append(all, Finding{"config", Failed, config.Errors{e}.Error(), "semel config validate " + c.Name})
		}
	} else if err != nil {
		all = append(all, Finding{"config", Failed, err.Error(), "semel config validate " + c.Name})
	}
	if len(all) > 0 {
		return all
	}
	for _, w := range c.Config.Warnings() {
		all = append(all, Finding{"config", Warning, w, "semel config explain --config " + c.Name})
	}
	what := c.Name + " is valid"
	if c.Name == "" {
		what = "the defaults and the environment, without a file"
	}
	return append(all, Finding{"config", OK, what, ""})
}

// operators says who may do what without a credential. A service that runs is asked itself.
func (c *Configured) operators() []Finding {
	if c.Running {
		return nil
	}
	if c.Config.OpenAdmin() {
		return []Finding{{"access", Warning, "no operator is named, so every program on this machine is an admin: set admin.token_file, or give a caller in auth a role", "semel config explain" + c.Where + " admin.token_file"}}
	}
	return []Finding{{"access", OK, "operators need a credential", ""}}
}

// secrets are the files that only the service should read.
func (c *Configured) secrets() Finding {
	files := []string{c.Config.Admin.TokenFile, c.Config.Evidence.KeyFile, c.Config.Listen.TLS.Key, c.Config.Admin.TLS.Key, c.Config.Store.URLFile}
	for i := range c.Config.Auth.Tokens {
		files = append(files, c.Config.Auth.Tokens[i].TokenFile)
	}
	n := 0
	for _, file := range files {
		info, err := os.Stat(file)
		if file == "" || err != nil { // the check of the configuration has said so
			continue
		}
		n++
		if runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
			return Finding{"secrets", Warning, file + " can be read by everybody on this machine", "chmod o-r " + file}
		}
	}
	return Finding{"secrets", OK, plural(n, "file") + " with secrets, none readable by everybody", ""}
}

// listener looks whether the service that runs answers at an address, or whether one could.
func (c *Configured) listener(setting, address string) Finding {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return Finding{setting, OK, address + ": the system picks a free port", ""}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	if c.Running {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), dialTime)
		switch next := "semel config explain" + c.Where + " " + setting; {
		case err != nil && c.Elsewhere:
			return Finding{setting, Warning, "nobody answers at " + address + ": the service that has the store open was started with other settings", next}
		case err != nil:
			return Finding{setting, Failed, "the service runs, and nobody answers there: " + err.Error(), next}
		}
		_ = conn.Close()
		return Finding{setting, OK, address + " accepts connections", ""}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return Finding{setting, Failed, "a service could not listen there: " + err.Error(), "semel config explain" + c.Where + " " + setting}
	}
	_ = l.Close()
	return Finding{setting, OK, address + " is free", ""}
}

// store opens the store, and looks at it.
func (c *Configured) store(ctx context.Context) []Finding {
	url := c.Config.Store.URL
	if url == "memory:" {
		return []Finding{{"store", Warning, "it is in memory: every record is lost when the service stops", "semel config explain" + c.Where + " store.url"}}
	}
	if dir, embedded := strings.CutPrefix(url, "pebble:"); embedded {
		switch names, err := os.ReadDir(dir); {
		case errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0:
			return []Finding{{"store", Warning, "there is none in " + dir + " yet: the first start makes it", "semel serve" + c.Where}}
		case err != nil:
			return []Finding{{"store", Failed, err.Error(), "ls -ld " + dir}}
		}
	}
	i, err := service.Inspect(ctx, c.Config)
	if err != nil {
		return []Finding{{"store", Failed, text(c.InUse(err)), c.opening(err)}}
	}
	var all []Finding
	for _, found := range i.Findings(ctx) {
		f := Finding{Check: found.Name, Status: OK, Detail: found.Detail}
		switch {
		case found.Err != nil:
			f.Status, f.Detail = Failed, text(found.Err)
		case found.Amiss:
			f.Status = Warning
		case f.Detail == "":
			f.Detail = "nothing to report"
		}
		if f.Status != OK {
			f.Next = c.next(found.Name)
		}
		if errors.Is(found.Err, pgstore.ErrRights) {
			f.Next = grant
		}
		if errors.Is(found.Err, redisstore.ErrRights) {
			f.Next = aclOf
		}
		all = append(all, f)
	}
	recs := c.Records(i)
	waiting, _ := heldIn(ctx, recs, c.Where)
	all = append(all, waiting, strangersIn(ctx, recs, c.Where), parkedIn(ctx, recs, c.Where))
	if err := i.Close(); err != nil {
		all = append(all, Finding{"store", Failed, fmt.Sprintf("closing it: %v", err), c.next("store")})
	}
	return all
}

// grant gives a role its rights; the detail has the statements.
const grant = "semel migrate print --role ROLE | psql"

// aclOf gives a user of Redis the commands that the detail names.
const aclOf = "redis-cli ACL SETUSER USER +COMMAND"

// opening is what to type where a store can't be opened.
func (c *Configured) opening(err error) string {
	switch {
	case errors.Is(err, pgstore.ErrNotMigrated):
		return "semel migrate up" + c.Where
	case errors.Is(err, pgstore.ErrRights):
		return grant
	case errors.Is(err, redisstore.ErrRights):
		return aclOf
	case errors.Is(err, pgstore.ErrNewer):
		return "semel version"
	}
	return c.next("store")
}

// next is nextFor a store that no service runs on.
func (c *Configured) next(check string) string {
	switch check {
	case "store", "durability", "writes":
		return "semel store status" + c.Where
	}
	return nextFor(check, c.Where)
}
