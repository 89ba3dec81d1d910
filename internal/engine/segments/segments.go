// Package segments names the cells beside a record that have the parts of its recorded streams, and
// deletes them.
package segments

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/semelhq/semel/store"
)

// Operation is that of the cells.
const Operation = store.ReservedPrefix + "stream"

// Cell is the cell with part n of the stream of an attempt. Its name doesn't tell the key.
func Cell(id store.ID, fence int64, n int) store.ID {
	d := id.Digest()
	return store.ID{Tenant: id.Tenant, Operation: Operation, Key: hex.EncodeToString(d[:]) + "/" + strconv.FormatInt(fence, 10) + "/" + strconv.Itoa(n)}
}

// Remove deletes the streams of a record's attempts. The last cells go first, so that whoever
// was cut off finds the others when they begin again.
func Remove(ctx context.Context, st store.Store, rec *store.Record) error {
	fences := []int64{rec.Fence}
	for i := range rec.Earlier {
		fences = append(fences, rec.Earlier[i].Fence)
	}
	for _, fence := range fences {
		n := 0
		for ; ; n++ {
			_, err := st.Get(ctx, Cell(rec.ID, fence, n))
			if errors.Is(err, store.ErrNotFound) {
				break
			} else if err != nil {
				return err
			}
		}
		for n--; n >= 0; n-- {
			if err := store.NewCell(st, Cell(rec.ID, fence, n)).Remove(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
