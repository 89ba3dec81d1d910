package api

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/figures"
)

// figuresBody is a [figures.Report].
type figuresBody struct {
	From        time.Time `json:"from" doc:"When the first point begins."`
	To          time.Time `json:"to" doc:"Now, by the store's clock."`
	StepSeconds int       `json:"step_seconds" doc:"60 or 3600"`
	Nodes       int       `json:"nodes" doc:"How many processes have figures in the store, those that have ended included."`
	Alone       bool      `json:"alone" doc:"The store doesn't answer, so these are the figures of this node, and what it had read of others before."`
	Crowd       int       `json:"crowd" doc:"A record with so many deliveries at once within a minute, the one that ran included, is in crowded."`
	Total       Sums      `json:"total"`

	Operations []operationSums `json:"operations" nullable:"false" doc:"The one with the most duplicates first."`
	Series     []series        `json:"series" nullable:"false"`
	Points     []point         `json:"points" nullable:"false" doc:"One for each step, the oldest first."`

	Repeated []recordCounts `json:"repeated" nullable:"false" doc:"The records with the most duplicates."`
	Crowded  []recordCounts `json:"crowded" nullable:"false" doc:"Those with crowd deliveries at once within a minute, or more."`
	Failing  []recordCounts `json:"failing" nullable:"false" doc:"Those with the most failed attempts."`
}

// Sums are the counts of some deliveries, in the form of GET /v1/figures.
type Sums struct {
	Deliveries     int64   `json:"deliveries" doc:"Deliveries with a key that got a decision."`
	Executed       int64   `json:"executed"`
	Duplicates     int64   `json:"duplicates" doc:"Deliveries that did not execute."`
	DuplicateShare float64 `json:"duplicate_share" doc:"Duplicates of all deliveries, from 0 to 1."`
	Simultaneous   int64   `json:"simultaneous" doc:"Deliveries that met a running attempt."`
	FailedAttempts int64   `json:"failed_attempts" doc:"Attempts that ended failed, aborted or abandoned."`
	Refused        int64   `json:"refused" doc:"Requests that a door has refused by itself. They have no operation."`
	FailedOpen     int64   `json:"failed_open" doc:"Requests that ran without a guard while the store didn't answer, because their route has store_down: fail_open. They may have happened twice."`
}

func sumsOf(s *figures.Sums) Sums {
	return Sums{s.Deliveries, s.Executed, s.Duplicates, s.DuplicateShare(), s.Simultaneous, s.FailedAttempts, s.Refused, s.FailedOpen}
}

type operationSums struct {
	Operation string `json:"operation"`
	Sums
}

type series struct {
	Door      string `json:"door"`
	Operation string `json:"operation"`
	What      string `json:"what" doc:"A decision, or simultaneous, failed_attempt, refused or failed_open."`
	Count     int64  `json:"count"`
}

type point struct {
	At time.Time `json:"at"`
	Sums
	P50 float64 `json:"added_p50_seconds" doc:"What half of the deliveries had added to their time at most; up to 19 % too long, and zero without deliveries."`
	P99 float64 `json:"added_p99_seconds"`
}

type recordCounts struct {
	Record         string    `json:"record" doc:"The record's id."`
	Tenant         string    `json:"tenant"`
	Operation      string    `json:"operation"`
	Duplicates     int64     `json:"duplicates"`
	Simultaneous   int64     `json:"simultaneous"`
	Peak           int64     `json:"peak" doc:"The most simultaneous deliveries in one minute on one node."`
	FailedAttempts int64     `json:"failed_attempts"`
	Attempt        int       `json:"attempt" doc:"The number of the newest failed attempt."`
	Last           time.Time `json:"last"`
}

func recordCountsOf(list []figures.Record) []recordCounts {
	out := make([]recordCounts, 0, len(list))
	for i := range list {
		r := &list[i]
		out = append(out, recordCounts{
			r.ID.Encode(), r.ID.Tenant, r.ID.Operation, r.Duplicates, r.Simultaneous, r.Peak, r.Failed, r.Attempt, time.Unix(r.Last, 0).UTC(),
		})
	}
	return out
}

type figuresInput struct {
	Minutes int `query:"minutes" minimum:"1" maximum:"10080" default:"60" doc:"How far back. Up to 180, points are minutes, and beyond that hours."`
}

func (b *builder) figures() {
	route(b, huma.Operation{
		OperationID: "getFigures", Method: http.MethodGet, Path: "/v1/figures", Tags: []string{"figures"},
		Summary: "Read what happened lately, over all nodes",
		Description: "Figures are less than two seconds late, and survive restarts; a node that dies loses those of its last second. " +
			"They are about all tenants, so a caller who may see only one is refused.",
	}, Viewer, nil, getFigures)
}

func getFigures(x *exchange, in *figuresInput) (*reply[figuresBody], error) {
	if x.tenant() != nil {
		return nil, x.api.newProblem(semel.CodeForbidden, "the figures are about all tenants, and the caller may see only their own")
	}
	r, err := x.api.opts.Figures.Read(x.ctx(), time.Duration(in.Minutes)*time.Minute)
	if err != nil {
		return nil, err
	}
	out := figuresBody{
		From: r.From, To: r.To, StepSeconds: int(r.Step / time.Second), Nodes: r.Nodes, Alone: r.Alone, Crowd: r.Crowd, Total: sumsOf(&r.Total),
		Operations: []operationSums{}, Series: []series{}, Points: []point{},
		Repeated: recordCountsOf(r.Repeated), Crowded: recordCountsOf(r.Crowded), Failing: recordCountsOf(r.Failing),
	}
	for i := range r.Operations {
		out.Operations = append(out.Operations, operationSums{r.Operations[i].Name, sumsOf(&r.Operations[i].Sums)})
	}
	for _, c := range r.Series {
		out.Series = append(out.Series, series{c.Door, c.Operation, c.What, c.N})
	}
	for i := range r.Points {
		p := &r.Points[i]
		out.Points = append(out.Points, point{p.At, sumsOf(&p.Sums), p.P50.Seconds(), p.P99.Seconds()})
	}
	return &reply[figuresBody]{out}, nil
}
