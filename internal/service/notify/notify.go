// Package notify reports the service's state to systemd, by the protocol of sd_notify(3),
// and keeps its watchdog fed. Outside of systemd it does nothing.
package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/semelhq/semel/internal/behind"
)

// Notifier sends messages to the service manager. A nil Notifier sends none. It is
// immutable, so all methods may be called concurrently.
type Notifier struct {
	socket   string
	watchdog time.Duration // zero: off
}

// FromEnv reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Without the first it
// returns nil. It returns an error for values that no service manager sets.
func FromEnv() (*Notifier, error) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil
	}
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %q is neither a path nor an abstract name", socket)
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err == nil && watchdog < 0 {
		err = errors.New("WATCHDOG_USEC is too large")
	}
	if err != nil {
		return nil, err
	}
	return &Notifier{socket, watchdog}, nil // package net handles the @
}

// Ready says that the service accepts requests: after its start, and after a
// reload that Reloading announced.
func (n *Notifier) Ready() error { return n.send(daemon.SdNotifyReady) }

// Reloading says that the service reads its configuration again. Call Ready afterwards,
// even if the reload failed and nothing changed. It works for units of Type=notify, and
// also of Type=notify-reload, because it sends the monotonic time that those need.
func (n *Notifier) Reloading() error {
	return n.send(strings.TrimSpace(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec()))
}

// Stopping says that the service is shutting down.
func (n *Notifier) Stopping() error { return n.send(daemon.SdNotifyStopping) }

// Watch feeds the watchdog at half of its interval while healthy reports true, until ctx
// is done. Otherwise the service manager hears nothing, and ends the service as the unit
// says once the interval is over. The error is nil unless the last message could not be
// sent. Watch returns at once if no watchdog is set.
func (n *Notifier) Watch(ctx context.Context, healthy func() bool) error {
	if n == nil || n.watchdog == 0 {
		return nil
	}
	var failed error // the last; the next message may get through
	feed := func(context.Context) {
		if healthy() {
			failed = n.send(daemon.SdNotifyWatchdog)
		}
	}
	feed(ctx)
	behind.Every(ctx, max(n.watchdog/2, time.Microsecond), feed)
	return failed
}

// sendTimeout bounds the wait while the service manager's queue is full.
const sendTimeout = 5 * time.Second

// send makes a connection for each message, as sd_notify does, because the socket is a
// new one after a restart of the service manager. Unlike send in package daemon it
// doesn't wait for ever.
func (n *Notifier) send(state string) error {
	if n == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err = c.Write([]byte(state))
	if err = errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
