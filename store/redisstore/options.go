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
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Options are what you can't say in an address.
type Options struct {
	// Prefix begins the names of all keys, so that several stores, or other
	// programs, can use the same servers. It has up to 64 letters, digits and any
	// of "-_.:". Defaults to "semel".
	Prefix string
	// Timeout is how long a server may stay silent before the store gives up the
	// connection, and how long connecting may take, which is at most 3 seconds. The context
	// of a call bounds it too. Defaults to 4 seconds; must be at least 100 milliseconds.
	Timeout time.Duration
	// TLS is used with rediss addresses. If nil, the store trusts the system's
	// certificate authorities and checks the host's name.
	TLS *tls.Config
	// AcceptLoss says that you accept that a failover can lose acknowledged
	// records, and that calls are then executed twice. [Store.Durability] no longer
	// lists replicas and Clusters as unsafe then; their level stays the same.
	AcceptLoss bool
}

// connectLimit is how long connecting may take: one that the network has swallowed costs no
// more than that.
const connectLimit = 3 * time.Second

var validPrefix = regexp.MustCompile(`^[-_.:a-zA-Z0-9]{1,64}$`)

// checked fills in the defaults, and reports all problems at once.
func (o *Options) checked() (Options, error) {
	out := *cmp.Or(o, new(Options))
	out.Prefix = cmp.Or(out.Prefix, "semel")
	out.Timeout = cmp.Or(out.Timeout, 4*time.Second)
	var errs []error
	if !validPrefix.MatchString(out.Prefix) {
		errs = append(errs, errors.New(`option Prefix: up to 64 letters, digits and any of "-_.:"`))
	}
	if out.Timeout < 100*time.Millisecond {
		errs = append(errs, errors.New("option Timeout: at least 100ms"))
	}
	return out, errors.Join(errs...)
}

// Open connects to the servers at an address and checks that you can use them:
//
//	redis://[user:password@]host[:port][/database]
//	redis-cluster://[user:password@]host[:port][,host[:port]...]
//
// With rediss or rediss-cluster the connections are encrypted. The port defaults to
// 6379. Of a Cluster you name one host or several; they tell the store about the others.
//
// Open refuses a replica, a server that is too old, and data in a newer format. All it
// writes is the number of the format, on an empty server; a crash before or after that
// leaves nothing to clean up.
func Open(ctx context.Context, address string, opts *Options) (*Store, error) {
	// The client connects without a context, within its own timeouts.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, l, err := connect(address, opts)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: o, keys: newKeyspace(o.Prefix), link: l, asks: make(chan struct{}, maxAsks), name: rand.Text()[:8] + "-"}
	s.life, s.end = context.WithCancel(context.Background())
	s.makeClock()
	s.makeQueues()
	if err := errors.Join(s.check(ctx), s.clock.Read(ctx)); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return s, nil
}

// Connect returns a client with the settings that Open would use, for programs that
// compare the store with Redis itself. You close it.
func Connect(address string, opts *Options) (rueidis.Client, error) {
	_, l, err := connect(address, opts)
	if err != nil {
		return nil, err
	}
	l.client().writes.Close()
	return l.client().Client, nil
}

func connect(address string, opts *Options) (o Options, l *link, err error) {
	l = new(link)
	if o, err = opts.checked(); err == nil {
		l.option, l.cluster, err = parse(address, &o)
	}
	if err != nil {
		return o, nil, fmt.Errorf("redisstore: %w", err)
	}
	c, err := l.dial()
	if err != nil {
		return o, nil, fmt.Errorf("redisstore: connect to %s: %w", strings.Join(l.option.InitAddress, ","), err)
	}
	l.current.Store(c)
	return o, l, nil
}

// parse reads an address. Its errors never show anything that may be a password.
func parse(address string, o *Options) (opt rueidis.ClientOption, cluster bool, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return opt, false, errors.New("the address is not a URL")
	}
	scheme, cluster := strings.CutSuffix(u.Scheme, "-cluster")
	if scheme != "redis" && scheme != "rediss" {
		return opt, false, fmt.Errorf("the address begins with %q; known are redis, rediss, redis-cluster and rediss-cluster", u.Scheme)
	}
	if u.RawQuery != "" {
		return opt, false, errors.New("the address has parameters (?...), and none exist")
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
			return opt, false, errors.New("a Cluster has no database but 0")
		}
		opt.SelectDB = int(n)
	}
	opt.Username = u.User.Username()
	opt.Password, _ = u.User.Password()
	if scheme == "rediss" {
		opt.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.TLS != nil {
			opt.TLSConfig = o.TLS.Clone()
		}
		if opt.TLSConfig.ServerName == "" && !cluster {
			opt.TLSConfig.ServerName, _, _ = net.SplitHostPort(opt.InitAddress[0])
		}
	}
	// While nodes disagree about who serves a slot, they may redirect a command in a circle.
	opt.ClusterOption.MaxMovedRedirections = 16
	opt.Dialer = net.Dialer{Timeout: min(o.Timeout, connectLimit), KeepAlive: min(time.Second, o.Timeout)}
	opt.ConnWriteTimeout = o.Timeout
	opt.DisableCache = true
	return opt, cluster, nil
}
