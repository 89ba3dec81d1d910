package demo

// doorReport is the storm of one door.
type doorReport struct {
	Door   string
	OK     bool
	Orders int
	// Sent is how many copies of the orders were sent, Requests how many requests that
	// took, and HungUp how many senders did not wait for an answer.
	Sent     int
	Requests int
	HungUp   int
	// Answers counts the senders that stayed and got a successful answer, Failed those
	// that got none, and Differing the orders whose senders did not all get the same.
	Answers   int
	Failed    int
	Differing int
	// Effects counts the charges in the toy service's ledger, and Once the orders that
	// were charged exactly once.
	Effects int
	Once    int
	// Held counts the calls of which nobody knew the outcome, so that an operator looked
	// them up and settled them.
	Held int
	// KilledPID is the process of Semel that was killed in the storm.
	KilledPID int
	Seconds   float64
	// Trouble is what the first sender got that got no successful answer.
	Trouble string
	// Faults says in words what was wrong; empty when OK.
	Faults []string
}

// judge compares the results with Semel's promises.
func (r *doorReport) judge() {
	f := faults{}
	f.want("charges", r.Effects, r.Orders)
	f.want("orders charged exactly once", r.Once, r.Orders)
	f.want("senders that stayed and got an answer", r.Answers, r.Sent-r.HungUp)
	f.want("orders whose senders got different answers", r.Differing, 0)
	f.must("Semel was not killed", r.KilledPID != 0)
	f.must("a sender got: "+r.Trouble, r.Trouble == "")
	r.Faults, r.OK = f, len(f) == 0
}
