package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/safehttp"
)

// keyDir keeps keys in a directory, one file for each call. Any number of processes may
// use it.
type keyDir string

var _ client.Keys = keyDir("")

// file is where the key of a call is.
func (d keyDir) file(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(string(d), hex.EncodeToString(sum[:]))
}

// For writes a key to a file that nobody reads, and then gives that the name of the call's
// file, unless there is one already. A crash before the link leaves a file that you may
// remove. A crash after it leaves the key, which the next process uses.
func (d keyDir) For(name string) (string, error) {
	made, err := os.CreateTemp(string(d), "new-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(made.Name()) }()
	_, err = made.WriteString(safehttp.NewKey())
	if err := errors.Join(err, made.Sync(), made.Close()); err != nil {
		return "", err
	}
	if err := os.Link(made.Name(), d.file(name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	key, err := os.ReadFile(d.file(name))
	return string(key), errors.Join(err, d.sync())
}

// Done removes the file. A crash before that leaves the key: the caller has the outcome and
// calls Done again.
func (d keyDir) Done(name string) error {
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.sync()
}

// sync makes links and removals durable. Leave it out on Windows, which can't sync a
// directory.
func (d keyDir) sync() error {
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// A program that crashes after it has sent a call finds the call's key when it is back.
func ExampleKeys() {
	address, stop := serve()
	defer stop()
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	charge := func(context.Context, semel.Execution) (string, error) {
		fmt.Println("the card is charged")
		return "ch_1", nil
	}
	var keys client.Keys = keyDir(dir)
	for range 2 { // two lives of the program
		c, err := client.New(address, nil)
		if err != nil {
			log.Fatal(err)
		}
		key, err := keys.For("order 42")
		if err != nil {
			log.Fatal(err)
		}
		id, ans, err := semel.Do(context.Background(), c, semel.Call{Operation: "payments.charge", Key: key}, charge)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ans.Decision, id)
	}
	// The outcome is in the program's own database by now.
	if err := keys.Done("order 42"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the card is charged
	// execute ch_1
	// replay ch_1
}
