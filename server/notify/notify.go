// Package notify tells systemd what state the service is in, by the protocol of
// sd_notify(3), and keeps its watchdog fed. Outside of systemd all of it does
// nothing.
package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier sends messages to the service manager. The nil Notifier sends none. It
// is immutable, so all methods may be called concurrently.
type Notifier struct {
	socket   string
	watchdog time.Duration // zero: off
}

// FromEnv reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Without the first it
// returns nil. The error is for values that no service manager sets.
func FromEnv() (*Notifier, error) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil
	}
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %q is neither a path nor an abstract name", socket)
	}
	n := &Notifier{socket: socket} // package net knows what @ means
	usec := os.Getenv("WATCHDOG_USEC")
	if usec == "" {
		return n, nil
	}
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n, nil // meant for another process, whose environment this is a copy of
	}
	interval, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || interval <= 0 || interval > int64((1<<63-1)/time.Microsecond) {
		return nil, fmt.Errorf("WATCHDOG_USEC: %q is no number of microseconds", usec)
	}
	n.watchdog = time.Duration(interval) * time.Microsecond
	return n, nil
}

// Ready says that the service accepts requests: after its start, and after a
// reload that Reloading announced.
func (n *Notifier) Ready() error { return n.send("READY=1") }

// Reloading says that the configuration is being read again. Ready must follow,
// also if the reload failed and all is as before. It works for units of
// Type=notify and, with the time that those compare with their signal's, of
// Type=notify-reload.
func (n *Notifier) Reloading() error {
	state := "RELOADING=1"
	if usec, ok := monotonicMicroseconds(); ok {
		state += "\nMONOTONIC_USEC=" + strconv.FormatInt(usec, 10)
	}
	return n.send(state)
}

// Stopping says that the service is shutting down.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Status gives a line for people, as systemctl status shows it.
func (n *Notifier) Status(line string) error {
	// A line break would begin another assignment.
	return n.send("STATUS=" + strings.Join(strings.Fields(line), " "))
}

// Watch feeds the watchdog at half of its interval for as long as healthy says so,
// until ctx is done. While it does not, the service manager hears nothing, and ends
// the service as the unit says once the interval is over. Messages that could not
// be sent are in the error, which is nil if ctx just ended. It returns at once if
// no watchdog is set.
func (n *Notifier) Watch(ctx context.Context, healthy func() bool) error {
	if n == nil || n.watchdog == 0 {
		return nil
	}
	tick := time.NewTicker(max(n.watchdog/2, time.Microsecond))
	defer tick.Stop()
	var failed error // the last; the next message may get through
	for {
		if healthy() {
			failed = n.send("WATCHDOG=1")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return failed
		}
	}
}

// sendTimeout bounds the wait for a service manager whose queue is full.
const sendTimeout = 5 * time.Second

// send makes a connection for each message, as sd_notify does: the socket is a new
// one after the service manager was started again.
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
