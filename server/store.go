package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// OpenStore opens the store that a URL names: "pebble:" and a directory, or
// "memory:". The context bounds opening.
func OpenStore(ctx context.Context, url string) (semel.Store, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "pebble":
		if rest == "" {
			return nil, errors.New("store: pebble: needs a directory, such as pebble:./semel-data")
		}
		st, err := pebblestore.Open(rest, nil)
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		return st, nil
	case "memory":
		return memstore.New(), nil
	}
	return nil, fmt.Errorf("store: %q is no kind of store; there are pebble:DIR and memory: (in memory only)", scheme)
}
