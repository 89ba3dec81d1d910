package stage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
)

// nodeEnv tells a program that it is a node, and has its arguments.
const nodeEnv = "SEMEL_STAGE_NODE"

// Node is a program that is killed and started again, each time at another address. Its
// methods but URL are for one goroutine.
type Node struct {
	command func() (*exec.Cmd, error)
	process atomic.Pointer[Process]
}

// StartNode starts a program, which command makes anew for each start.
func StartNode(ctx context.Context, command func() (*exec.Cmd, error)) (*Node, error) {
	n := &Node{command: command}
	return n, n.start(ctx)
}

// StartSelf starts this program as a node with arguments: the function that it passes to
// [Child] serves.
func StartSelf(ctx context.Context, args ...string) (*Node, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	return StartNode(ctx, func() (*exec.Cmd, error) {
		cmd, err := Self()
		if err == nil {
			cmd.Env = append(os.Environ(), nodeEnv+"="+string(text))
			cmd.Stderr = os.Stderr
		}
		return cmd, err
	})
}

func (n *Node) start(ctx context.Context) error {
	cmd, err := n.command()
	if err != nil {
		return err
	}
	p, err := Start(ctx, cmd)
	if err == nil {
		n.process.Store(p)
	}
	return err
}

// URL is where the node serves, or did before it was killed.
func (n *Node) URL() string { return n.process.Load().URL }

// Kill ends the node as kill -9 does.
func (n *Node) Kill() { n.process.Load().Kill() }

// Crash kills the node and starts it again.
func (n *Node) Crash(ctx context.Context) error {
	n.Kill()
	return n.start(ctx)
}

// Restart ends the node in an orderly way and starts it again. It returns an error if the
// node ended with one.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.process.Load().Terminate(); err != nil {
		return err
	}
	return n.start(ctx)
}

// Stop ends the node in an orderly way.
func (n *Node) Stop() error { return n.process.Load().Stop() }

// Child serves, if [StartSelf] has started this process, and reports whether it has. Call
// it first in a program or TestMain. ctx of serve is done when the node has to end.
func Child(ctx context.Context, serve func(ctx context.Context, l net.Listener, args []string) error) (isChild bool, err error) {
	text, isChild := os.LookupEnv(nodeEnv)
	if !isChild {
		return false, nil
	}
	var args []string
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		return true, err
	}
	return true, Serve(ctx, os.Stdin, os.Stdout, func(ctx context.Context, l net.Listener) error { return serve(ctx, l, args) })
}

// Serve is the other half of [Start]: it listens on a free port, prints the address, and
// serves until standard input ends or ctx is done.
func Serve(ctx context.Context, stdin io.Reader, stdout io.Writer, serve func(ctx context.Context, l net.Listener) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close() // if serve hasn't
	at := Address{URL: "http://" + l.Addr().String()}
	return Announce(ctx, stdin, stdout, at, func(ctx context.Context) error { return serve(ctx, l) })
}

// Announce is [Serve] for what listens already.
func Announce(ctx context.Context, stdin io.Reader, stdout io.Writer, at Address, serve func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := json.NewEncoder(stdout).Encode(at); err != nil {
		cancel() // serve closes what it has
		return errors.Join(err, serve(ctx))
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel() // the parent is done, or gone
	}()
	return serve(ctx)
}
