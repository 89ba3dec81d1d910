package clause

// A Deployment is a store with the settings on which its durability depends. Tests prove
// it by its ID: they show that Semel reports the level, and that records survive what the
// deployment says.
type Deployment struct {
	ID       string // unique, such as "ON-MEMORY"
	Name     string // the heading of its column
	URL      string
	Package  string // of the store, relative to the module
	Level    string // what the store reports; one of store.Level
	Survives string // what an acknowledged record survives
	LostWith string // and what it is lost with
}

// A Guarantee is one promise that Semel makes to its users. It may be claimed where a test
// that names its ID, or one of its Clauses, has passed.
type Guarantee struct {
	ID    string // unique, such as "G-HOLDER"
	Title string
	Text  string // the promise, in one sentence
	// Clauses are the clauses of the specifications that make up the promise.
	Clauses []string
	// PerStore means that the promise rests on the store, so that each store needs a test of
	// its own. Otherwise it rests on code that runs in front of every store.
	PerStore bool
	// Except has the deployments on which the promise doesn't hold without
	// qualification, by their IDs, and what to say there. [No] needs no proof.
	Except map[string]string
	If     string // what you have to do
	Not    string // what the promise doesn't cover
}

// No is what [Guarantee.Except] says of a deployment on which a promise isn't made at all.
const No = "no"

// A Mode is a way of using Semel, with its promise.
type Mode struct {
	Name  string
	Gives string
	Lacks string
	Needs string
	IDs   []string // of the guarantees that it rests on
}

// Promises is the content of docs/guarantees.md, but for the tests that prove it.
type Promises struct {
	Never       []string // what can't be promised
	Deployments []Deployment
	Modes       []Mode
	Guarantees  []Guarantee
}

// lookup returns the deployment or guarantee with this id as a clause.
func (p Promises) lookup(id string) (Clause, bool) {
	for _, d := range p.Deployments {
		if d.ID == id {
			return Clause{ID: id, Level: "MUST", Source: "guarantees", Text: d.Name}, true
		}
	}
	for _, g := range p.Guarantees {
		if g.ID == id {
			return Clause{ID: id, Level: "MUST", Source: "guarantees", Text: g.Text}, true
		}
	}
	return Clause{}, false
}
