package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// nodeCommand is how the program runs itself as a node.
const nodeCommand = "node"

// process is a node that may be killed and started again.
type process struct {
	file string

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func (p *process) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, nodeCommand, p.file)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var at address
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &at)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("the node did not start: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.stdin, p.url = cmd, stdin, "http://"+at.Listen
	return nil
}

// address is where the node serves, or did before it was killed.
func (p *process) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// stop ends it in an orderly way.
func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.stdin.Close()
	err := p.cmd.Wait()
	p.cmd = nil
	return err
}
