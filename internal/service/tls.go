package service

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

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
