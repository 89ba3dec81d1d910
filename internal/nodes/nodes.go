// Package nodes keeps lists of the nodes that share a store, each list in one cell. A list is
// bounded, and a node leaves it some time after its last word.
package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// most bounds a list, and so what its readers read of each node.
const most = 256

// kept is a list in a cell, by the ids of the nodes.
type kept[N any] struct {
	Nodes map[string]N `json:"nodes"`
}

// Load reads a list. If it is damaged, it is empty. If a newer program has written it, the error is
// [form.ErrNewer], wrapped: nobody else knows these nodes.
func Load[N any](ctx context.Context, cell *store.Cell) (map[string]N, error) {
	value, err := cell.Load(ctx)
	if err != nil {
		return nil, err
	}
	return parse[N](value.Data)
}

func parse[N any](data []byte) (map[string]N, error) {
	var list kept[N]
	err := form.Read(data, 1, &list)
	if errors.Is(err, form.ErrNewer) {
		return nil, fmt.Errorf("a list of nodes: %w", err)
	}
	if err != nil || list.Nodes == nil {
		list.Nodes = map[string]N{}
	}
	return list.Nodes, nil
}

// Change changes a list, which stays for keepFor. If it is too long, the nodes with the oldest
// words leave it. A newer program's list stays as it is, and the error is that of Load.
func Change[N any](ctx context.Context, cell *store.Cell, keepFor time.Duration, seen func(N) int64, to func(map[string]N)) error {
	return cell.Change(ctx, func(old store.CellValue) (store.CellValue, error) {
		list, err := parse[N](old.Data)
		if err != nil {
			return store.CellValue{}, err
		}
		to(list)
		for len(list) > most {
			delete(list, slices.MinFunc(slices.Collect(maps.Keys(list)), func(a, b string) int { return cmp.Compare(seen(list[a]), seen(list[b])) }))
		}
		data, err := json.Marshal(kept[N]{list})
		return store.CellValue{Data: data, KeepFor: keepFor}, err
	})
}
