package others

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// ports are where Restate and the service listen, also after they were killed, because Restate
// keeps the service's address.
type ports struct{ Ingress, Admin, Node, Service int }

// serveRestate runs Restate's server and the service, both of which end with this process.
func serveRestate() {
	store := os.Getenv("STORE")
	p := keptPorts(filepath.Join(store, "ports.json"))
	service := exec.Command("node", "restate.mjs")
	service.Dir, service.Stderr = "npm", os.Stderr
	service.Env = append(os.Environ(), fmt.Sprint("SDK_PORT=", p.Service))
	launch(service)
	server := exec.Command(filepath.Join("npm", "node_modules", ".bin", "restate-server"), "--no-logo", "--base-dir", store, "--listen-mode", "tcp")
	if native, err := filepath.Glob(filepath.Join("npm", "node_modules", "@restatedev", "restate-server-*", "bin", "restate-server")); err == nil && len(native) == 1 {
		server.Path = native[0] // the launcher would leave it running when it is killed
	}
	server.Env = append(os.Environ(), "RUST_LOG=error", "DO_NOT_TRACK=1",
		fmt.Sprint("RESTATE_INGRESS__BIND_ADDRESS=127.0.0.1:", p.Ingress), fmt.Sprint("RESTATE_ADMIN__BIND_ADDRESS=127.0.0.1:", p.Admin),
		fmt.Sprint("RESTATE_BIND_ADDRESS=127.0.0.1:", p.Node))
	server.Stderr = os.Stderr
	launch(server)
	uri, _ := json.Marshal(map[string]any{"uri": fmt.Sprint("http://127.0.0.1:", p.Service), "force": true})
	eventually(func() error {
		res, err := http.Post(fmt.Sprint("http://127.0.0.1:", p.Admin, "/deployments"), "application/json", bytes.NewReader(uri))
		if err == nil && res.StatusCode >= 300 {
			err = errors.New(res.Status)
		}
		return err
	})
	eventually(func() error {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", p.Ingress))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	must(json.NewEncoder(os.Stdout).Encode(stage.Address{URL: fmt.Sprint("http://127.0.0.1:", p.Ingress)}))
	select {}
}

func launch(cmd *exec.Cmd) {
	_, err := stage.Launch(cmd, func(out io.Reader, _ func()) { _, _ = io.Copy(io.Discard, out) })
	must(err)
}

// keptPorts reads the ports of the process before this one, or chooses free ones.
func keptPorts(file string) (p ports) {
	if text, err := os.ReadFile(file); err == nil {
		must(json.Unmarshal(text, &p))
		return p
	}
	for _, port := range []*int{&p.Ingress, &p.Admin, &p.Node, &p.Service} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		defer func() { _ = l.Close() }()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	text, err := json.Marshal(p)
	must(err)
	must(os.WriteFile(file, text, 0o666))
	return p
}

// eventually waits until something is done.
func eventually(f func() error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			must(err)
		}
		<-time.After(100 * time.Millisecond)
	}
}
