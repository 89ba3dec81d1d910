package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/service/config"
)

// recordSource names the service or the store with the records.
type recordSource struct {
	store, url, tokenFile, config, context string
	look                                   bool // the command changes nothing
	// service is the URL of the opened service, or empty; opened names the opened store.
	service, opened string
}

// add adds the flags.
func (src *recordSource) add(flags *pflag.FlagSet) {
	flags.StringVar(&src.store, "store", "", "`store`: pebble:DIR, postgres:, redis:")
	flags.StringVar(&src.url, "url", "", "`URL` of a service's admin listener")
	flags.StringVar(&src.tokenFile, "token-file", "", "`file` with the token for the service")
	flags.StringVar(&src.config, "config", "", "the service's configuration `file`")
	flags.StringVar(&src.context, "context", "", "`name` of a service, as 'semel context add' gave it")
}

// flags returns the flags that name the source, for a command to copy.
func (src *recordSource) flags() string {
	var b strings.Builder
	for _, f := range [...]struct{ name, value string }{
		{"store", withoutPassword(src.store)}, {"url", src.url}, {"token-file", src.tokenFile}, {"config", src.config}, {"context", src.context},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " --%s %s", f.name, f.value)
		}
	}
	return b.String()
}

// looked adds to a not-found error where the command looked, unless a flag named the place.
func (src *recordSource) looked(err error) error {
	e, ok := errors.AsType[*exitError](err)
	if !ok || e.code != ExitNotFound || src.flags() != "" {
		return err
	}
	where := cmp.Or(src.service, src.opened)
	if where == "" {
		return err
	}
	return &exitError{ExitNotFound, fmt.Errorf("%w. Looked for at %s; --url, --context, --store and --config name other places", err, where)}
}

// withoutPassword returns the URL of a store for a terminal, shortened if it has a password.
func withoutPassword(store string) string {
	u, err := url.Parse(store)
	secret := err != nil || strings.Contains(store, "password")
	if !secret && u.User != nil {
		_, secret = u.User.Password()
	}
	if secret {
		return config.Store{URL: store}.Name()
	}
	return store
}

// openSource opens the records of a service or a store.
func openSource(cmd *cobra.Command, src *recordSource) (recs client.Records, closer io.Closer, err error) {
	at, tokenFile, err := src.place(cmd, func() (io.Closer, error) {
		recs, closer, err = openLocal(cmd, src)
		return closer, err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case at != "":
		c, err := src.ask(at, tokenFile)
		return c, c, err
	}
	return recs, closer, nil
}

// place finds where a command works: the service at a URL, with the file of the token for it, or,
// if the URL is empty, the store that local has opened. If a service on this machine has the store
// open, it is that service.
func (src *recordSource) place(cmd *cobra.Command, local func() (io.Closer, error)) (at, tokenFile string, err error) {
	if at, tokenFile, err = src.where(); err != nil || at != "" {
		return at, tokenFile, err
	}
	opened, err := local()
	if e, ok := errors.AsType[*inUseError](err); ok && e.url != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "semel: asking %s, the service that has %s open\n", e.url, e.dir)
		return e.url, src.tokenFile, nil
	}
	if err == nil && src.tokenFile != "" {
		err = errors.Join(usage("--token-file is for a service, and this is a store"), opened.Close())
	}
	return "", "", err
}

// settings returns the configuration with the store that the flags name, which must exist and be of
// a kind that another process can open.
func (src *recordSource) settings(cmd *cobra.Command) (*config.Config, error) {
	cfg, _, err := loadConfig(cmd, src.config, src.store)
	if err != nil {
		return nil, err
	}
	src.opened = cfg.Store.Name()
	if url := cfg.Store.URL; url == "memory:" || url == "pebble:" {
		return nil, usage("the store is %q, which nobody else can open; ask its service with --url", url)
	}
	return cfg, mustExist(cfg.Store.URL, ", or its service with --url")
}

// nearby returns the admin URL of the service that runs with the configuration: of the one that has
// its store open, or else the configured one.
func (src *recordSource) nearby(cmd *cobra.Command) (at string, err error) {
	cfg, _, err := loadConfig(cmd, src.config, src.store)
	if err != nil {
		return "", err
	}
	if dir, embedded := strings.CutPrefix(cfg.Store.URL, "pebble:"); embedded {
		if url, alive := noted(dir); alive {
			return url, nil
		}
	}
	return adminURL(cfg), nil
}

// adminURL is the admin listener of a configuration, as this machine reaches it.
func adminURL(cfg *config.Config) string {
	host, port, _ := net.SplitHostPort(cfg.Admin.Address) // which was checked
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if cfg.Admin.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// where returns the service that the command asks, with the file of the token for it; it is empty
// for a store.
func (src *recordSource) where() (at, tokenFile string, err error) {
	local := src.store != "" || src.config != ""
	switch {
	case src.url != "" && local:
		return "", "", usage("--url excludes --store and --config: a service knows its own, so name one or the other")
	case src.context != "" && (local || src.url != "" || src.tokenFile != ""):
		return "", "", usage("--context excludes --url, --token-file, --store and --config: leave it out, or them")
	case src.url != "":
		return src.url, src.tokenFile, nil
	case local:
		return "", "", nil
	}
	if at := os.Getenv("SEMEL_URL"); at != "" && src.context == "" {
		return at, src.tokenFile, nil
	}
	c, ok, err := chosenContext(src.context)
	if err != nil || !ok {
		return "", "", err
	}
	return c.URL, cmp.Or(src.tokenFile, c.TokenFile), nil
}

// ask returns a client of a service.
func (src *recordSource) ask(at, tokenFile string) (*client.Client, error) {
	opts := &client.Options{AdminURL: at, TokenFile: tokenFile}
	if tokenFile == "" {
		opts.Token = os.Getenv("SEMEL_TOKEN")
	}
	c, err := client.New(at, opts)
	if err != nil {
		return nil, badSource(at, tokenFile, err)
	}
	src.service = at
	return c, nil
}

// badSource blames the address or the token for an error.
func badSource(at, tokenFile string, err error) error {
	what := "--token-file " + tokenFile
	if _, wrong := client.New("http://localhost", &client.Options{AdminURL: at}); wrong != nil {
		if what, err = "--url", wrong; at == os.Getenv("SEMEL_URL") {
			what = "SEMEL_URL"
		}
	} else if tokenFile == "" {
		what = "SEMEL_TOKEN"
	} else if e, ok := errors.AsType[*fs.PathError](err); ok {
		return usage("%s: %w", what, e.Err)
	}
	return usage("%s: %s", what, strings.NewReplacer("client: ", "", "token file: ", "", "AdminURL ", "the address ").Replace(err.Error()))
}
