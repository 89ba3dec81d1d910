package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// asking has arguments for every command that asks a service, and the exit code by which its
// answer shows. The service has one call, with the key order-1.
var asking = map[string]struct {
	args []string
	code int
}{
	"semel doctor":             {nil, ExitOK},
	"semel evidence export":    {nil, ExitOK},
	"semel evidence prove":     {[]string{"0"}, ExitOK},
	"semel evidence show":      {[]string{"order-1"}, ExitOK},
	"semel evidence verify":    {[]string{"--keys", "PUBLIC"}, ExitOK},
	"semel healthcheck":        {nil, ExitOK},
	"semel ids list":           {nil, ExitOK},
	"semel messages discard":   {[]string{"msg_none", "--reason", "r", "--yes"}, ExitNotFound},
	"semel messages list":      {nil, ExitOK},
	"semel messages replay":    {[]string{"msg_none", "--reason", "r", "--yes"}, ExitNotFound},
	"semel messages show":      {[]string{"msg_none"}, ExitNotFound},
	"semel reconcile payments": {nil, ExitCheck}, // there is none
	"semel records get":        {[]string{"order-1"}, ExitOK},
	"semel records list":       {[]string{"key:order-1"}, ExitOK},
	"semel records purge":      {[]string{"order-1", "--reason", "r", "--dry-run"}, ExitOK},
	"semel records release":    {[]string{"order-1", "--reason", "r", "--yes"}, ExitConflict},
	"semel records confirm":    {[]string{"order-1", "--reason", "r", "--yes"}, ExitConflict},
	"semel records settle":     {[]string{"order-1", "--outcome", "completed", "--reason", "r", "--yes"}, ExitConflict},
	"semel store accept-clock": {[]string{"--yes"}, ExitOK},
	"semel tail":               {nil, ExitOK},
	"semel top":                {[]string{"--once"}, ExitOK},
	"semel why":                {[]string{"order-1"}, ExitOK},
}

// withURL are the commands that ask a service: that have --url, but for what means another one.
func withURL(cmd *cobra.Command) (paths []string) {
	for _, sub := range cmd.Commands() {
		paths = append(paths, withURL(sub)...)
		f := sub.Flags().Lookup("url")
		if f == nil {
			f = sub.InheritedFlags().Lookup("url")
		}
		if path := sub.CommandPath(); f != nil && !sub.HasSubCommands() && path != "semel context add" && path != "semel webhook verify" {
			paths = append(paths, path)
		}
	}
	return paths
}

// stopsAt ends a command as soon as it prints a text: one that goes on by itself.
type stopsAt struct {
	bytes.Buffer
	text string
	stop func()
}

func (s *stopsAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return s.Buffer.Write(p)
}

// TestEveryCommandFindsTheService: no command needs --url on the machine of a service, where a
// variable or a context names it, or --context does.
func TestEveryCommandFindsTheService(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("SEMEL_URL", "")
	home := t.TempDir()
	t.Chdir(home)
	_, public, _ := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", "evidence.key")
	write(t, "evidence.pub", public)
	st, err := service.OpenStore(t.Context(), config.Store{URL: "pebble:./semel-data"})
	if err != nil {
		t.Fatal(err)
	}
	log, err := service.OpenEvidence(&config.Evidence{KeyFile: "evidence.key"}, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(st, &semel.Options{Witness: log, Operations: []semel.Operation{{Name: "pay", Evidence: semel.EvidenceDurable}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = engine.Do(t.Context(), semel.Call{Operation: "pay", Key: "order-1"}, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
	ctx := context.Background()
	for _, err := range []error{err, log.Close(ctx), log.Integrate(ctx), engine.Close(ctx), st.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, admin, _ := servingUntil(t, "api: 'off'\nstore: {url: 'pebble:./semel-data'}\nevidence: {key_file: evidence.key}\noperations: [{name: pay, evidence: durable}]\n")
	write(t, "n1.yaml", "store: {url: 'pebble:"+filepath.Join(home, "semel-data")+"'}\n")

	paths := withURL(newRoot())
	for path := range asking {
		if !slices.Contains(paths, path) {
			t.Errorf("%s has no --url", path)
		}
	}
	elsewhere := t.TempDir() // where there is no store
	for _, where := range []struct {
		name, dir string
		set       func(t *testing.T)
		flags     []string
	}{
		{"the store beside it is in use", home, nil, nil},
		{"the configuration names the store", elsewhere, nil, []string{"--config", filepath.Join(home, "n1.yaml")}},
		{"SEMEL_URL names it", elsewhere, func(t *testing.T) { t.Setenv("SEMEL_URL", admin) }, nil},
		{"a context is the current one", elsewhere, func(t *testing.T) {
			if code, _, errs := semelWith(t, "", "context", "add", "here", "--url", admin); code != ExitOK {
				t.Fatal(errs)
			}
		}, nil},
		{"--context names it", elsewhere, func(t *testing.T) {
			for _, args := range []string{"context add none --url http://127.0.0.1:1", "context use none"} {
				if code, _, errs := semelWith(t, "", strings.Fields(args)...); code != ExitOK {
					t.Fatal(errs)
				}
			}
		}, []string{"--context", "here"}},
	} {
		t.Run(where.name, func(t *testing.T) {
			t.Chdir(where.dir)
			if where.set != nil {
				where.set(t)
			}
			for _, path := range paths {
				test, ok := asking[path]
				if !ok {
					t.Errorf("%s asks a service: say in this test how it is called", path)
					continue
				}
				args := append(strings.Fields(path)[1:], test.args...)
				for i := range args {
					args[i] = strings.Replace(args[i], "PUBLIC", filepath.Join(home, "evidence.pub"), 1)
				}
				ctx, cancel := context.WithCancel(t.Context())
				out, errs := &bytes.Buffer{}, io.Writer(&bytes.Buffer{})
				if path == "semel tail" {
					errs = &stopsAt{text: "following", stop: cancel}
				}
				if code := Run(ctx, append(args, where.flags...), strings.NewReader(""), out, errs); code != test.code {
					t.Errorf("%s: exit %d instead of %d, %s%s", path, code, test.code, out, errs)
				}
				cancel()
			}
		})
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "semel-data")); err == nil {
		t.Errorf("a command has made a store in %s", elsewhere)
	}
}
