package api

import (
	"encoding/base64"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/conflicts"
	"github.com/semelhq/semel/internal/wire"
)

type conflictList struct {
	Conflicts []conflict `json:"conflicts" nullable:"false" doc:"The newest first."`
	KeptDays  int        `json:"kept_days" doc:"How long a key stays in the list after its last conflict."`
}

type conflict struct {
	Record string `json:"record" doc:"The record's id."`
	wire.Owner
	Operation  string                   `json:"operation"`
	Key        string                   `json:"idempotency_key"`
	Decisions  map[semel.Decision]int64 `json:"decisions" nullable:"false" doc:"How many deliveries were refused as conflict, other_caller and other_door."`
	Principals []string                 `json:"principals,omitempty" nullable:"false" doc:"Who sent another payload, up to four of them."`
	First      time.Time                `json:"first"`
	Last       time.Time                `json:"last"`
}

type payloads struct {
	Record    string      `json:"record" doc:"The record's id."`
	Keeps     bool        `json:"keeps" doc:"Whether the operation keeps payloads now: keep_payload."`
	First     Payload     `json:"first" doc:"What the record was made for."`
	Presented []presented `json:"presented" nullable:"false" doc:"What came under its key and was refused, up to four different ones, the newest last."`
}

// Payload is what a delivery asked for, in the form of GET /v1/records/{id}/payloads.
type Payload struct {
	Hash   semel.Fingerprint `json:"payload_hash,omitzero" doc:"The fingerprint; absent if none is compared."`
	Base64 *string           `json:"payload_base64,omitempty" doc:"What was sent, in base64. Absent: it was not kept."`
}

type presented struct {
	Payload
	Principal string    `json:"principal,omitempty" doc:"Who sent it first."`
	Count     int64     `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

type payloadsInput struct {
	ID string `path:"id" maxLength:"8192" doc:"The record's id."`
}

func (b *builder) conflicts() {
	route(b, about("listConflicts", "records", "GET /v1/conflicts", "List the keys that came with another payload, with another credential or through another door",
		"Over all nodes, some seconds late, and across restarts."), Viewer, nil, listConflicts)
	route(b, about("getPayloads", "records", "GET /v1/records/{id}/payloads", "Read what the deliveries of a record asked for, where it is kept",
		"To compare what was executed with what was refused as a conflict. Refused payloads are kept up to 64 KiB each."), Operator, []semel.Code{semel.CodeNotFound}, getPayloads)
}

func listConflicts(x *exchange, _ *struct{}) (*reply[conflictList], error) {
	list, err := x.api.observer.conflicts.List(x.ctx(), x.tenant())
	if err != nil {
		return nil, err
	}
	out := conflictList{Conflicts: make([]conflict, 0, len(list)), KeptDays: int(conflicts.KeptFor / (24 * time.Hour))}
	for _, c := range list {
		out.Conflicts = append(out.Conflicts, conflict{c.ID.Encode(), wire.OwnerOf(&c.ID), c.ID.Operation, c.ID.Key, c.Decisions, c.Principals, moment(c.First), moment(c.Last)})
	}
	return &reply[conflictList]{out}, nil
}

func getPayloads(x *exchange, in *payloadsInput) (*reply[payloads], error) {
	id, err := x.named(in.ID)
	if err != nil || !x.oversees(id.Tenant) {
		return nil, x.noRecord()
	}
	rec, err := x.api.engine.Lookup(x.ctx(), id)
	if err != nil {
		return nil, x.missing(err)
	}
	refused, err := x.api.observer.conflicts.Refused(x.ctx(), &rec)
	if err != nil {
		return nil, err
	}
	op, _ := x.api.engine.Internal().Operation(id.Operation)
	out := payloads{Record: id.Encode(), Keeps: op.KeepPayload, First: payloadOf(rec.Fingerprint, rec.Payload), Presented: []presented{}}
	for _, p := range refused {
		out.Presented = append(out.Presented, presented{payloadOf(p.Fingerprint, p.Payload), p.Principal, p.Count, moment(p.First), moment(p.Last)})
	}
	return &reply[payloads]{out}, nil
}

func payloadOf(fp semel.Fingerprint, data []byte) Payload {
	p := Payload{Hash: fp}
	if data != nil {
		p.Base64 = new(base64.StdEncoding.EncodeToString(data))
	}
	return p
}

func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
