package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Options are what an address does not say.
type Options struct {
	// Prefix begins the names of all keys, so that several sets of records, or
	// other programs, can use the same servers. It has up to 64 letters, digits
	// and any of "-_.:". Defaults to "semel".
	Prefix string
	// Timeout bounds how long a server may be silent before its connection is
	// given up, and how long connecting may take. Calls are bounded by their
	// context too. Defaults to 5 seconds; at least 100 milliseconds.
	Timeout time.Duration
	// TLS is used with rediss addresses. Nil: the system's certificate
	// authorities and the host's name.
	TLS *tls.Config
	// AcceptLoss is the operator's word that a failover may lose acknowledged
	// records, and that calls may then be executed twice. With it
	// [Store.Durability] does not call replicas and Cluster unsafe; their level
	// stays what it is.
	AcceptLoss bool
}

// String shows the options in one line.
func (o *Options) String() string {
	return fmt.Sprintf("prefix %q, timeout %v, accept loss %v, own TLS settings %v", o.Prefix, o.Timeout, o.AcceptLoss, o.TLS != nil)
}

// checked returns the options with their defaults, or every problem at once.
func (o *Options) checked() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	out.Prefix = cmp.Or(out.Prefix, "semel")
	out.Timeout = cmp.Or(out.Timeout, 5*time.Second)
	var errs []error
	odd := strings.ContainsFunc(out.Prefix, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.:", r))
	})
	if odd || len(out.Prefix) > 64 {
		errs = append(errs, errors.New(`option Prefix: up to 64 letters, digits and any of "-_.:"`))
	}
	if out.Timeout < 100*time.Millisecond {
		errs = append(errs, errors.New("option Timeout: at least 100ms"))
	}
	return out, errors.Join(errs...)
}

// Open connects to the servers at an address and checks that they can be used:
//
//	redis://[user:password@]host[:port][/database]
//	redis-cluster://[user:password@]host[:port][,host[:port]...]
//
// With rediss or rediss-cluster the connections are encrypted. "?cluster=true"
// makes the former the latter. The port defaults to 6379. The hosts of a Cluster
// are those that are asked for the others.
//
// It refuses a replica, a server that is too old, and data of a newer format. An
// empty server gets the format's mark, which is all that Open writes; a crash
// around it leaves nothing to clean up.
func Open(ctx context.Context, address string, opts *Options) (*Store, error) {
	o, err := opts.checked()
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	s := &Store{opts: o}
	if s.link.option, s.link.cluster, err = parse(address, &o); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	s.keys = newKeyspace(o.Prefix, s.link.cluster)
	s.writes = make([]batcher, len(s.keys.shards))
	s.life, s.end = context.WithCancel(context.Background())
	s.clock.init()
	s.watch.init(s)
	s.asks = make(chan struct{}, maxAsks)
	s.name = rand.Text()[:8] + "-"
	s.stages.base = s.keys.staged + s.name
	for i := range s.writes {
		s.writes[i].run, s.writes[i].work, s.writes[i].room = s.send, &s.work, &s.room
	}
	// The client connects without a context, within its own timeouts.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := s.link.dial(s.link.option)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("redisstore: connect to %s: %w", strings.Join(s.link.option.InitAddress, ","), err)
	}
	s.link.current.Store(&c)
	if err := errors.Join(s.check(ctx), s.readClock(ctx)); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// parse reads an address. Its errors don't show what may be a password.
func parse(address string, o *Options) (opt rueidis.ClientOption, cluster bool, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return opt, false, errors.New("the address is no URL")
	}
	var encrypted bool
	switch u.Scheme {
	case "redis", "redis-cluster":
	case "rediss", "rediss-cluster":
		encrypted = true
	default:
		return opt, false, fmt.Errorf("the address begins with %q; known are redis, rediss, redis-cluster and rediss-cluster", u.Scheme)
	}
	cluster = strings.HasSuffix(u.Scheme, "-cluster")
	for name, values := range u.Query() {
		if name != "cluster" {
			return opt, false, fmt.Errorf("the address has the parameter %q; known is cluster", name)
		}
		yes, err := strconv.ParseBool(values[0])
		if err != nil || len(values) > 1 {
			return opt, false, errors.New("the address has the parameter cluster, which is true or false, once")
		}
		cluster = cluster || yes
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if host == "" {
			return opt, false, errors.New("the address has no host")
		}
		if h, p, err := net.SplitHostPort(host); err != nil || p == "" {
			host = net.JoinHostPort(cmp.Or(h, strings.Trim(host, "[]")), "6379")
		}
		opt.InitAddress = append(opt.InitAddress, host)
	}
	if len(opt.InitAddress) > 1 && !cluster {
		return opt, false, errors.New("the address has several hosts, which only a Cluster has")
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		n, err := strconv.ParseUint(db, 10, 16)
		if err != nil {
			return opt, false, errors.New("the path of the address is the number of a database")
		}
		if n > 0 && cluster {
			return opt, false, errors.New("a Cluster has no databases beside 0")
		}
		opt.SelectDB = int(n)
	}
	opt.Username = u.User.Username()
	opt.Password, _ = u.User.Password()
	if encrypted {
		opt.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.TLS != nil {
			opt.TLSConfig = o.TLS.Clone()
		}
		if opt.TLSConfig.ServerName == "" && !cluster {
			opt.TLSConfig.ServerName, _, _ = net.SplitHostPort(opt.InitAddress[0])
		}
	}
	opt.DialCtxFn = dialServer
	opt.ClusterOption.MaxMovedRedirections = maxRedirections
	opt.Dialer = net.Dialer{Timeout: o.Timeout, KeepAlive: min(time.Second, o.Timeout)}
	opt.ConnWriteTimeout = o.Timeout
	opt.DisableCache = true // see watch.go for the one use of it
	return opt, cluster, nil
}
