package pgstore

import (
	"container/list"

	"github.com/semelhq/semel"
)

// op is one write on its way.
type op struct {
	id       digest
	write    semel.Write
	record   []byte        // for its column
	deadline semel.Instant // that of the write, by the server's clock

	// What came of it, once it is settled.
	settled bool
	current *semel.Record // nil after an error
	applied bool
	err     error
	done    chan struct{} // closed then; nil where nobody waits

	// The rest is the committer's, under its lock.
	in      *list.List    // where it waits; nil: it does not
	place   *list.Element // there
	behind  *list.List    // of *op: later writes of its identity
	arrived uint64        // how many batches had been taken by then
	taken   uint64        // the number of its batch
	apart   bool          // it is sent by itself, and waits for no lock
}

func newOp(w semel.Write) (*op, error) {
	record, err := encodeRecord(&w.Record)
	if err != nil {
		return nil, notApplied(err)
	}
	return &op{id: w.Record.ID.Digest(), write: w, record: record, deadline: w.Deadline}, nil
}

func (o *op) creates() bool { return o.write.Expect.IsZero() }

// size is about what the write takes in a statement.
func (o *op) size() int {
	return len(o.record) + len(o.write.Record.Result.Data) + entriesSize(o.write.Evidence) + 512
}

// columns are the parameters of a statement that writes ops.
type columns struct {
	*arena
	id, revision, record, nextAt, held, request, response, status, created, updated, expires column
}

// What the parameters take beside records and results, those of identities included.
const (
	columnsPerRow  = 32 + 16 + 8 + 1 + 2*requestSize + statusSize + 4*8 + 8 + identitySize + 3*24 + 17*4 + 2
	columnsAtLeast = 17 * arrayHeader
	columnsBare    = 8 + 1 + 2*requestSize + statusSize + 4*8 + 8 + identitySize + 3*24

	requestSize, statusSize, identitySize = 72, 10, 40
)

// fillVersions fills the columns, and leaves room for those of identities. Bare has
// them be of a statement for one row, if ops is one.
func fillVersions(ops []*op, bare bool) columns {
	n, bytes, results := len(ops), 0, 0
	for _, o := range ops {
		bytes += len(o.record)
		results += len(o.write.Record.Result.Data)
	}
	bare = bare && n == 1
	size := columnsBare
	if !bare {
		size = bytes + results + n*columnsPerRow + columnsAtLeast
	}
	a := newArena(n, bare, size)
	c := columns{
		arena: a,
		id:    a.bytea(32), revision: a.bytea(16), record: a.bytea(bytes/n + 1), nextAt: a.int8(), held: a.bool(),
		request: a.text(requestSize), response: a.bytea(results/n + 1), status: a.text(statusSize),
		created: a.time(), updated: a.time(), expires: a.time(),
	}
	for _, o := range ops {
		rec := &o.write.Record
		c.id.bytes(o.id[:])
		c.revision.bytes(rec.Revision[:])
		c.record.bytes(o.record)
		if rec.NextAt == 0 {
			c.nextAt.null()
		} else {
			c.nextAt.int8(int64(rec.NextAt))
		}
		c.held.bool(rec.Held != "")
		c.fingerprint(rec)
		c.response.bytesOrNull(rec.Result.Data)
		c.status.text(rec.State.String())
		c.created.time(rec.CreatedAt)
		c.updated.time(rec.UpdatedAt)
		c.expires.time(rec.ExpiresAt)
	}
	return c
}

func (c *columns) fingerprint(rec *semel.Record) {
	if rec.Fingerprint.IsZero() {
		c.request.null()
		return
	}
	text, _ := rec.Fingerprint.AppendText(c.take(requestSize)[:0]) // which can't fail
	c.request.bytes(text)
}

// identities are the parameters that say whose records they are.
func (a *arena) identities(rec func(i int) *semel.Record) (key, operation, user, tenant column) {
	key, operation, user, tenant = a.text(identitySize), a.text(24), a.text(24), a.text(24)
	for i := range a.rows {
		id := &rec(i).ID
		key.text(id.Key)
		operation.text(id.Operation)
		user.text(id.Principal)
		tenant.text(id.Tenant)
	}
	return key, operation, user, tenant
}

func (s *statements) creating(ops []*op) *statement {
	c := fillVersions(ops, true)
	since := c.int8()
	for _, o := range ops {
		since.int8(int64(o.write.Record.CreatedAt))
	}
	key, operation, user, tenant := c.identities(func(i int) *semel.Record { return &ops[i].write.Record })
	many, one := s.create, s.create1
	evidence := evidenceColumns(ops)
	if evidence != nil {
		many, one = s.noted.create, s.noted.create1
	}
	return newStatement(c.choose(many, one), c.id, c.revision, c.record, c.nextAt, c.held, c.request, c.response, c.status,
		c.created, c.updated, c.expires, since, key, operation, user, tenant, c.deadlines(ops)).with(evidence).of(ops, c.arena)
}

func (s *statements) updating(ops []*op) *statement {
	c := fillVersions(ops, true)
	expect := c.bytea(16)
	for _, o := range ops {
		expect.bytes(o.write.Expect[:])
	}
	many, one := s.update, s.update1
	evidence := evidenceColumns(ops)
	if evidence != nil {
		many, one = s.noted.update, s.noted.update1
	}
	return newStatement(c.choose(many, one), c.id, c.revision, c.record, c.nextAt, c.held, c.request, c.response, c.status,
		c.created, c.updated, c.expires, expect, c.deadlines(ops)).with(evidence).of(ops, c.arena)
}

// deadlines are null for writes without one.
func (a *arena) deadlines(ops []*op) column {
	c := a.time()
	for _, o := range ops {
		if o.write.Deadline == 0 {
			c.null()
		} else {
			c.int8(microseconds(o.deadline))
		}
	}
	return c
}

// choose is the statement that takes such columns, of one for many rows and one for a
// single row, which is quicker to run.
func (a *arena) choose(many, one text) text {
	if a.bare {
		return one
	}
	return many
}

func (s *statements) getting(ids []digest) *statement {
	c := byteaColumn(len(ids), 32)
	for i := range ids {
		c.bytes(ids[i][:])
	}
	return newStatement(s.get, c).prepare()
}
