// Package dashboard is the page for people who run Semel: records and their attempts on one
// timeline, held calls and how to settle them, the newest decisions, the evidence log. It is
// plain ES modules without a build step, embedded in the program, and it speaks the API that
// 'semel records --url' speaks, so it can do nothing that its user could not do by hand.
//
// 'semel serve' and 'semel proxy' have it at the root of the admin listener. A program with
// an engine of its own mounts it beside its other pages:
//
//	d, err := dashboard.ForEngine(engine, dashboard.Engine{Prefix: "/admin/semel", Authorize: authorize})
//	mux.Handle("/admin/semel/", d)
//
// Here authorize says who may look and decide, as for package admin, which shows one.
package dashboard
