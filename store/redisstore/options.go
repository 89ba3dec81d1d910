package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Options are the settings that an address doesn't have.
type Options struct {
	// Prefix begins the names of all keys, so that several stores, or other
	// programs, can use the same servers. It has up to 64 letters, digits and any
	// of "-_.:". Defaults to "semel".
	Prefix string
	// Timeout is how long a server may stay silent before the store gives up on the connection,
	// and how long connecting may take, which is at most 3 seconds. A call's context bounds it,
	// too. Defaults to 4 seconds; must be at least 100 milliseconds.
	Timeout time.Duration
	// TLS is for rediss addresses, which may add files to it. If nil, the store trusts the
	// system's certificate authorities and checks the host's name.
	TLS *tls.Config
	// AcceptLoss says that you accept that a failover can lose acknowledged records, so that
	// calls are executed twice. [Store.Durability] then no longer lists replicas and Clusters
	// as unsafe; their level stays the same.
	AcceptLoss bool
}

// connectLimit is how long connecting may take. It bounds the cost of a connection that the
// network has swallowed.
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
//	redis-sentinel://[user:password@]host[:port][,host[:port]...]/master[/database]
//	redis+unix://[user:password@]/path/of/the/socket[?db=database]
//
// With rediss, rediss-cluster or rediss-sentinel the connections are encrypted; the parameters
// sslrootcert, sslcert and sslkey then name files, as in an address of PostgreSQL: the
// authorities to trust instead of the system's, and a certificate of the client with its key.
// The port defaults to 6379, a Sentinel's to 26379. For a Cluster, name one host or several;
// they tell the store about the others. Sentinels tell it who the master of that name is; user
// and password are the master's, sentinel_user and sentinel_password the Sentinels'. Each
// address may also begin with valkey in place of redis.
//
// Open refuses a replica, a server that is too old, a single server if the address means a
// Cluster, one that asks for no password although the address has one for the default user, a
// user who lacks a right, and data in a newer format. All it writes is the number of the
// format, on an empty server; a crash before or after that leaves nothing to clean up.
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
	if err = s.check(ctx); err == nil {
		err = s.clock.Read(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return s, nil
}

// Check reports why Open would refuse an address and options even before connecting.
func Check(address string, opts *Options) error {
	o, err := opts.checked()
	if err == nil {
		_, _, err = parse(address, &o)
	}
	return err
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
