package api

import (
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/figures"
)

type figuresInput struct {
	Minutes int `query:"minutes" minimum:"1" maximum:"10080" default:"60" doc:"How far back. Up to 180, points are minutes, and beyond that hours."`
}

func (b *builder) figures() {
	route(b, about("getFigures", "figures", "GET /v1/figures", "Read what happened lately, over all nodes",
		"Figures are less than two seconds late, and survive restarts; a node that dies loses those of its last second. "+
			"They are about all tenants, so a caller who may see only one is refused."), Viewer, nil, getFigures)
}

func getFigures(x *exchange, in *figuresInput) (*reply[figures.Report], error) {
	if x.tenant() != nil {
		return nil, x.api.newProblem(semel.CodeForbidden, "the figures are about all tenants, and the caller has a role in one: a value of auth.jwt[].roles with all_tenants gives one in all, and so does the role admin to a caller whom the configuration names without a tenant")
	}
	r, err := x.api.opts.Figures.Read(x.ctx(), time.Duration(in.Minutes)*time.Minute)
	if err != nil {
		return nil, err
	}
	return &reply[figures.Report]{*r}, nil
}
