package service

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
)

// tlsConfig reads the files of a listener. New connections get a changed certificate
// file, so you can renew it in place.
func tlsConfig(files config.TLS) (*tls.Config, error) {
	certs := &certificates{cert: files.Cert, key: files.Key}
	if _, err := certs.get(nil); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certs.get}
	if files.ClientCA != "" {
		pem, err := auth.ReadFile(files.ClientCA, maxKeyFile)
		if err != nil {
			return nil, err
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM form", files.ClientCA)
		}
		// Callers may also authenticate by a token, so a certificate is verified if there
		// is one, and required of nobody.
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c, nil
}

// certificates is a certificate in two files, which you may replace at any time.
type certificates struct {
	cert, key string

	mu       sync.Mutex
	loaded   *tls.Certificate
	modified time.Time // of the certificate file, when it was loaded
	looked   time.Time
}

// certPause is how often the files are checked.
const certPause = 10 * time.Second

// get is GetCertificate of [tls.Config]. If a new pair can't be read, the old one stays
// in use.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && time.Since(c.looked) < certPause {
		return c.loaded, nil
	}
	c.looked = time.Now()
	info, err := os.Stat(c.cert)
	if err == nil && c.loaded != nil && info.ModTime().Equal(c.modified) {
		return c.loaded, nil
	}
	pair, perr := tls.LoadX509KeyPair(c.cert, c.key)
	if perr != nil {
		if c.loaded != nil {
			return c.loaded, nil
		}
		return nil, perr
	}
	c.loaded = &pair
	if err == nil {
		c.modified = info.ModTime()
	}
	return c.loaded, nil
}
