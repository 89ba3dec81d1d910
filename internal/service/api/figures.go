package api

import (
	"time"

	"github.com/semelhq/semel/internal/service/figures"
)

type figuresInput struct {
	Minutes int `query:"minutes" minimum:"1" maximum:"10080" default:"60" doc:"How far back. Up to 180, points are minutes, and beyond that hours."`
}

func (b *builder) figures() {
	route(b, about("getFigures", "figures", "GET /v1/figures", "Read what happened lately, over all nodes",
		"Figures are less than two seconds late, and survive restarts; a node that dies loses those of its last second. "+
			"A caller who may see only one tenant gets those of that tenant, as far as the nodes have room for tenants: see partial."), Viewer, nil, func(x *exchange, in *figuresInput) (*reply[figures.Report], error) {
		return replied(x.api.opts.Figures.Read(x.ctx(), time.Duration(in.Minutes)*time.Minute, x.tenant()))
	})
	route(b, about("listNodes", "figures", "GET /v1/nodes", "List the nodes that share the store",
		"A node says once a minute that it runs, and leaves the list when it stops. Counts are as in the figures."), Viewer, nil, func(x *exchange, in *figuresInput) (*reply[figures.Cluster], error) {
		return replied(x.api.opts.Figures.Nodes(x.ctx(), time.Duration(in.Minutes)*time.Minute, x.tenant()))
	})
}
