package semel

import "context"

// charger returns a function that counts bytes which somebody keeps because of a delivery,
// beside its record, against the quotas of whoever rec counts for. It reports false, and
// counts nothing, if they are over one of these quotas. It is nil if none is set.
func (q *quotas) charger(ctx context.Context, rec *Record) func(bytes int64) bool {
	if len(q.set) == 0 {
		return nil
	}
	names := make([]bucketName, len(q.set))
	for i := range q.set {
		names[i] = q.bucket(ctx, &q.set[i], rec)
	}
	at := rec.UpdatedAt
	return func(bytes int64) bool {
		for i := range q.set {
			if one := &q.set[i]; one.bytes && q.table.wait(names[i], q.price(one, bytes), q.Window, at) > 0 {
				return false
			}
		}
		for i := range q.set {
			if one := &q.set[i]; one.bytes {
				q.table.spend(names[i], q.price(one, bytes), at)
			}
		}
		return true
	}
}
