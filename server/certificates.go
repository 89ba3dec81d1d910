package server

import (
	"crypto/tls"
	"os"
	"sync"
	"time"
)

// certificates is a certificate in two files, which may be replaced.
type certificates struct {
	cert, key string

	mu       sync.Mutex
	loaded   *tls.Certificate
	modified time.Time // of the certificate's file when it was loaded
	looked   time.Time
}

// certPause is how often the files are looked at.
const certPause = 10 * time.Second

// get is for tls.Config. A new pair that can't be read leaves the old one in use.
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
