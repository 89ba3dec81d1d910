package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// kind is the kind of server that an address leads to, as the second part of its scheme says.
type kind string

const (
	single     kind = ""
	inCluster  kind = "-cluster"
	bySentinel kind = "-sentinel"
	overSocket kind = "+unix"
)

// schemeOf reads the scheme of an address.
func schemeOf(scheme string) (k kind, encrypted bool, err error) {
	base := scheme
	if n := strings.IndexAny(scheme, "-+"); n >= 0 {
		base, k = scheme[:n], kind(scheme[n:])
	}
	encrypted = base == "rediss" || base == "valkeys"
	known := slices.Contains([]kind{single, inCluster, bySentinel}, k) || k == overSocket && !encrypted
	if !known || !encrypted && base != "redis" && base != "valkey" {
		return "", false, fmt.Errorf("the address begins with %q; known are redis, redis-cluster, redis-sentinel, redis+unix, and with TLS rediss, rediss-cluster, rediss-sentinel; likewise valkey and valkeys", scheme)
	}
	return k, encrypted, nil
}

// parse reads an address. Its errors never show anything that may be a password.
func parse(address string, o *Options) (opt rueidis.ClientOption, cluster bool, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return opt, false, errors.New("the address is not a URL")
	}
	k, encrypted, err := schemeOf(u.Scheme)
	if err != nil {
		return opt, false, err
	}
	params, err := parametersOf(u, k, encrypted)
	if err != nil {
		return opt, false, err
	}
	// While nodes disagree about who serves a slot, they may redirect a command in circles.
	opt.ClusterOption.MaxMovedRedirections = 16
	opt.Dialer = net.Dialer{Timeout: min(o.Timeout, connectLimit), KeepAlive: min(time.Second, o.Timeout)}
	opt.ConnWriteTimeout = o.Timeout
	opt.DisableCache = true
	opt.Username = u.User.Username()
	opt.Password, _ = u.User.Password()
	if err := where(&opt, u, k, params); err != nil {
		return opt, false, err
	}
	if encrypted {
		if opt.TLSConfig, err = tlsOf(o.TLS, params); err != nil {
			return opt, false, err
		}
		if opt.TLSConfig.ServerName == "" && k == single {
			opt.TLSConfig.ServerName, _, _ = net.SplitHostPort(opt.InitAddress[0])
		}
	}
	if k == bySentinel {
		opt.Sentinel.Dialer, opt.Sentinel.TLSConfig = opt.Dialer, opt.TLSConfig
		opt.Sentinel.Username, opt.Sentinel.Password = params.Get("sentinel_user"), params.Get("sentinel_password")
	}
	return opt, k == inCluster, nil
}

// parametersOf returns the parameters after an address's question mark.
func parametersOf(u *url.URL, k kind, encrypted bool) (url.Values, error) {
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters (?...) of the address can't be read")
	}
	known := map[kind][]string{bySentinel: {"sentinel_user", "sentinel_password"}, overSocket: {"db"}}[k]
	if encrypted {
		known = append(known, "sslrootcert", "sslcert", "sslkey")
	}
	for name, values := range params {
		if !slices.Contains(known, name) || len(values) > 1 {
			return nil, fmt.Errorf("the address has parameters (?...) that don't exist, or some twice; such an address may have %s", cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	return params, nil
}

// where sets the host to connect to, and the database to use.
func where(opt *rueidis.ClientOption, u *url.URL, k kind, params url.Values) error {
	db := strings.Trim(u.Path, "/")
	switch k {
	case overSocket:
		if u.Host != "" || db == "" {
			return errors.New("the address has no path of a socket: write three slashes, as in redis+unix:///run/redis/redis.sock")
		}
		opt.InitAddress, db = []string{u.Path}, params.Get("db")
		opt.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	case bySentinel:
		if opt.Sentinel.MasterSet, db, _ = strings.Cut(db, "/"); opt.Sentinel.MasterSet == "" {
			return errors.New("the path of the address is the name by which the Sentinels know the master, as in redis-sentinel://host/mymaster")
		}
	default:
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if k == overSocket {
			break
		}
		if host == "" {
			return errors.New("the address has no host")
		}
		if h, p, err := net.SplitHostPort(host); err != nil || p == "" {
			port := map[kind]string{bySentinel: "26379"}[k]
			host = net.JoinHostPort(cmp.Or(h, strings.Trim(host, "[]")), cmp.Or(port, "6379"))
		}
		opt.InitAddress = append(opt.InitAddress, host)
	}
	if len(opt.InitAddress) > 1 && k == single {
		return errors.New("the address has several hosts, which only a Cluster, or Sentinels, have")
	}
	if db == "" {
		return nil
	}
	n, err := strconv.ParseUint(db, 10, 16)
	if err != nil {
		return errors.New("the path of the address, or its end, is the number of a database")
	}
	if n > 0 && k == inCluster {
		return errors.New("a Cluster has no database but 0")
	}
	opt.SelectDB = int(n)
	return nil
}

// tlsOf returns how to encrypt connections: as the program says, and with the files that an
// address names.
func tlsOf(base *tls.Config, params url.Values) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		c = base.Clone()
	}
	if file := params.Get("sslrootcert"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("sslrootcert: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("sslrootcert: %s has no certificate in PEM", file)
		}
	}
	if cert, key := params.Get("sslcert"), params.Get("sslkey"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("sslcert and sslkey: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
