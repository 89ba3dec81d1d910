package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

func (b *builder) evidence() {
	codes := []semel.Code{semel.CodeUnsupported, semel.CodeNotFound}
	route(b, about("listEvidence", "evidence", "GET /v1/evidence/entries", "Read what the evidence log says about a call",
		"Name the call by its record, or by an id of one of its deliveries, which may be a duplicate or one that was rejected. Several calls may have the same name. "+
			"An admin of all tenants may leave out both, and reads the whole log. An entry may be newer than the newest checkpoint. "+
			"Only an export proves the answer, or the proofs that newest adds, if you keep the checkpoint they lead to. "+
			"A verified caller reads the entries of their own calls without a role, by record. All else needs the role viewer."), NoRole, append(codes, semel.CodeForbidden), listEvidence)
	if !b.admin {
		return
	}
	route(b, about("getCheckpoint", "evidence", "GET /v1/evidence/checkpoint", "Read the newest checkpoint of the evidence log",
		"It says nothing about anybody. Keep it where the operator of the store can't change it."), Viewer, codes, getCheckpoint)
	route(b, about("verifyEvidence", "evidence", "POST /v1/evidence/verify", "Have the service verify its evidence log",
		"It checks what an export would have, with nothing but the public keys. To prove the log to others, export it and verify it elsewhere."), Viewer, codes, verifyEvidence)
	export := about("exportEvidence", "evidence", "GET /v1/evidence/export", "Download the evidence log, to verify it elsewhere",
		"Lines of JSON up to the newest checkpoint, as 'semel evidence verify' reads them; an answer that broke off lacks the last one, which has end. "+
			"A caller who may see only one tenant gets its entries only, each with a proof. A reader that is too slow is cut off.")
	export.Responses = map[string]*huma.Response{"200": {
		Description: "The export.",
		Content:     map[string]*huma.MediaType{exportType: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	route(b, export, Viewer, codes, exportEvidence)
}

// readEvidence is the log and its reader; nil where an empty log has something to say, too.
func (x *exchange) readEvidence(mayBeEmpty bool) (*evidence.Log, *evidence.Reader, error) {
	log := x.api.opts.Evidence
	if log == nil {
		return nil, nil, x.api.newProblem(semel.CodeUnsupported, "this service keeps no evidence: its store can't, or evidence.key_file is not set")
	}
	reader, err := log.Reader(x.ctx())
	if err != nil && !(mayBeEmpty && errors.Is(err, evidence.ErrEmpty)) {
		return nil, nil, x.unreadable(err)
	}
	return log, reader, nil
}

func getCheckpoint(x *exchange, _ *struct{}) (*reply[wire.Checkpoint], error) {
	log, reader, err := x.readEvidence(true)
	if err != nil {
		return nil, err
	}
	c := wire.Checkpoint{Origin: log.Trust().Origin(), Keys: log.Trust().Keys()}
	if fault := log.Fault(); fault != nil {
		c.Fault = fault.Error()
	}
	if reader != nil {
		signed, at := reader.Checkpoint()
		c.Signed, c.Size, c.Root = signed, at.Size, at.Root.String()
	}
	return &reply[wire.Checkpoint]{c}, nil
}

type evidenceInput struct {
	Record string `query:"record" maxLength:"8192" doc:"The id of the record; instead of name."`
	Name   string `query:"name" maxLength:"1024" doc:"The key, or the command, request, correlation or event id of a delivery."`
	Tenant string `query:"tenant" maxLength:"256" doc:"The tenant in which the name counts. Defaults to the caller's, which for who sees all tenants is the empty one."`
	From   int64  `query:"from" minimum:"0" doc:"The first number that is listed."`
	Newest bool   `query:"newest" doc:"List the newest entry first, each with its proof, 50 in a page."`
	Before int64  `query:"before" minimum:"0" doc:"With newest: list only entries with smaller numbers."`
}

func listEvidence(x *exchange, in *evidenceInput) (*reply[wire.Evidence], error) {
	out, budget := &reply[wire.Evidence]{wire.Evidence{Entries: []wire.EvidenceEntry{}}}, paging.New(x.ctx())
	log, reader, err := x.readEvidence(in.Newest)
	if err != nil || reader == nil {
		return out, err
	}
	numbers, err := x.numbers(log, reader, in)
	if err != nil {
		return nil, err
	}
	limit, proofs := wire.MaxEvidence, map[uint64][]string{}
	if in.Newest {
		limit = newestPage
		if proofs, err = prove(x.ctx(), reader, numbers[:min(limit, len(numbers))], &out.Body); err != nil {
			return nil, x.unreadable(err)
		}
	}
	for _, n := range numbers {
		if len(out.Body.Entries) == limit || budget.Spent {
			out.Body.Next = n
			if in.Newest {
				out.Body.Next++
			}
			break
		}
		kept, err := reader.Entry(x.ctx(), n)
		if err != nil {
			return nil, x.unreadable(err)
		}
		if !json.Valid(kept.Leaf) || kept.Opening != nil && !json.Valid(kept.Opening) {
			return nil, x.unreadable(evidence.ErrTampered)
		}
		budget.Spend(len(kept.Leaf) + len(kept.Opening))
		out.Body.Entries = append(out.Body.Entries, wire.EvidenceEntry{N: n, Leaf: kept.Leaf, Opening: kept.Opening, Proof: proofs[n]})
	}
	return out, nil
}

const newestPage = 50

// numbers finds the entries that the caller asks for, if they may see them, in the order of the
// list: at least one more than a page has, if there are as many.
func (x *exchange) numbers(log *evidence.Log, reader *evidence.Reader, in *evidenceInput) (numbers []uint64, err error) {
	_, at := reader.Checkpoint()
	from, before := uint64(in.From), uint64(math.MaxUint64)
	if in.Before > 0 {
		before = uint64(in.Before)
	}
	subject, err := x.subject(log, in)
	switch {
	case err != nil:
		return nil, err
	case in.Record == "" && in.Name == "":
		before = min(before, at.Size)
		if in.Newest {
			from = max(from, before-min(before, newestPage+1))
		}
		for n := from; n < min(before, from+wire.MaxEvidence+1); n++ {
			numbers = append(numbers, n)
		}
	case in.Name != "":
		numbers, err = reader.FindCalls(x.ctx(), subject)
	case in.Newest:
		numbers, err = reader.Find(x.ctx(), subject)
	default:
		numbers, err = reader.FindSome(x.ctx(), subject, from, wire.MaxEvidence+1)
	}
	if err != nil {
		return nil, x.unreadable(err)
	}
	first, _ := slices.BinarySearch(numbers, from)
	end, _ := slices.BinarySearch(numbers, before)
	numbers = numbers[min(first, end):end]
	if in.Newest {
		slices.Reverse(numbers)
	}
	return numbers, nil
}

// prove proves the entries up to the newest checkpoint, and notes its root on the page.
func prove(ctx context.Context, reader *evidence.Reader, numbers []uint64, page *wire.Evidence) (map[uint64][]string, error) {
	_, at := reader.Checkpoint()
	page.Size, page.Root = at.Size, at.Root.String()
	numbers = slices.DeleteFunc(slices.Clone(numbers), func(n uint64) bool { return n >= at.Size })
	proofs, err := reader.Prove(ctx, numbers)
	texts := map[uint64][]string{}
	for i, proof := range proofs {
		texts[numbers[i]] = []string{}
		for _, hash := range proof {
			texts[numbers[i]] = append(texts[numbers[i]], hash.String())
		}
	}
	return texts, err
}

// subject is what the caller asks about, if they may; zero for the whole log.
func (x *exchange) subject(log *evidence.Log, in *evidenceInput) (s store.Subject, err error) {
	switch {
	case in.Record == "" && !(x.admin && x.caller.Role >= Viewer):
		return s, x.api.newProblem(semel.CodeForbidden, "without the role viewer you may read the evidence of your own calls only: give record")
	case in.Record != "" && in.Name != "":
		return s, x.api.invalid("query.record", "give either record or name")
	case in.Name == "" && in.Tenant != "":
		return s, x.api.invalid("query.tenant", "a tenant goes with a name; a record has its tenant in its id")
	case in.Name != "":
		tenant, err := x.tenantOf(in.Tenant, "evidence")
		return log.Name(tenant, in.Name), err
	case in.Record == "" && x.tenant() != nil:
		return s, x.api.newProblem(semel.CodeForbidden, "only an admin of all tenants may see the whole log: give record or name")
	case in.Record == "":
		return s, nil
	}
	id, err := x.named(in.Record)
	if err == nil && !x.readsEvidence(id) {
		err = x.noRecord()
	}
	return log.Subject(id), err
}

// readsEvidence reports whether the caller may read the entries about a record. A key that callers
// share, or that nobody was verified for, proves nobody's right to read.
func (x *exchange) readsEvidence(id semel.ID) bool {
	return x.oversees(id.Tenant) || x.caller.Principal != "" && id.Principal == x.caller.Principal
}

// unreadable says why the log can't be read: who asks has a role.
func (x *exchange) unreadable(err error) error {
	switch {
	case errors.Is(err, evidence.ErrEmpty):
		return x.api.newProblem(semel.CodeNotFound, "the evidence log has no checkpoint yet")
	case errors.Is(err, evidence.ErrTampered), errors.Is(err, evidence.ErrFork):
		return x.api.newProblem(door.CodeInternal, "the evidence log is not what was signed: export and verify it")
	case x.ctx().Err() != nil:
		return x.ctx().Err()
	}
	return x.api.newProblem(semel.CodeStoreUnavailable, "the evidence log can't be read at the moment")
}
