package dispatch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/safehttp"
)

// The sender of a message reads why it was not delivered, and nothing of the network
// that did not deliver it.
func TestFailuresTellNothingOfTheNetwork(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 443}, Err: err}
	}
	for want, err := range map[string]error{
		"can't be resolved":  dial(&net.DNSError{Err: "no such host", Name: "billing.internal", Server: "10.0.0.53:53"}),
		"no connection":      dial(errors.New("connection refused")),
		"there is no conn":   dial(context.DeadlineExceeded), // whoever didn't answer, it was before anything was sent
		"in time":            fmt.Errorf("10.0.0.9: %w", context.DeadlineExceeded),
		"certificate":        &tls.CertificateVerificationError{Err: x509.HostnameError{Host: "billing.internal", Certificate: &x509.Certificate{}}},
		"is not public":      fmt.Errorf("%w: 10.0.0.9", safehttp.ErrPrivate),
		"connection broke":   &net.OpError{Op: "read", Err: errors.New("10.0.0.9: reset")},
		"the receiver's own": errors.New("the receiver's own"),
	} {
		if want == "the receiver's own" {
			if got := kept(err); got != want {
				t.Errorf("the error of a sender became %q", got)
			}
			continue
		}
		for _, err := range []error{&noAnswerError{err}, Park("code", &noAnswerError{err})} {
			got := kept(err)
			if !strings.Contains(got, want) || strings.Contains(got, "10.0.0") || strings.Contains(got, "internal") {
				t.Errorf("%v became %q", err, got)
			}
			if !strings.Contains(err.Error(), "10.0.0") && !strings.Contains(err.Error(), "internal") {
				t.Errorf("observers are told %q only", err)
			}
		}
	}
}

// What a call may not send is parked, and the receiver is not asked.
func TestOnlyAllowedCallsSend(t *testing.T) {
	asked := 0
	l := &line{Destination: Destination{
		Allow:   func(call semel.ID) bool { return call.Operation == "pay" },
		Sender:  SenderFunc(func(context.Context, Delivery) error { asked++; return nil }),
		Timeout: DefaultTimeout,
	}}
	err := send(t.Context(), l, Delivery{Call: semel.ID{Operation: "other"}})
	if v, ok := errors.AsType[*verdict](err); !ok || v.code != "not_allowed" || asked != 0 {
		t.Errorf("%v, and it was asked %d times", err, asked)
	}
	if err := send(t.Context(), l, Delivery{Call: semel.ID{Operation: "pay"}}); err != nil || asked != 1 {
		t.Errorf("%v, and it was asked %d times", err, asked)
	}
}
