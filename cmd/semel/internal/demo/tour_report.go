package demo

// TourReport has the results of the tour; semel demo --tour --json prints it.
type TourReport struct {
	OK      bool         `json:"ok"`
	Seed    uint64       `json:"seed"`
	Seconds float64      `json:"seconds"`
	Doors   []DoorReport `json:"doors"`
	// Faults says in words what was wrong, at all doors; empty when OK.
	Faults []string `json:"faults"`
}

// DoorReport is the storm of one door.
type DoorReport struct {
	Door   string `json:"door"`
	OK     bool   `json:"ok"`
	Orders int    `json:"orders"`
	// Sent is how many copies of the orders were sent, Requests how many requests that
	// took, and HungUp how many senders did not wait for an answer.
	Sent     int `json:"sent"`
	Requests int `json:"requests"`
	HungUp   int `json:"hung_up"`
	// Answers counts the senders that stayed and got a successful answer, Failed those
	// that got none, and Differing the orders whose senders did not all get the same.
	Answers   int `json:"answers"`
	Failed    int `json:"failed"`
	Differing int `json:"differing"`
	// Effects counts the charges in the toy service's ledger, and Once the orders that
	// were charged exactly once.
	Effects int `json:"effects"`
	Once    int `json:"once"`
	// Held counts the calls of which nobody knew the outcome, so that an operator looked
	// them up and settled them.
	Held int `json:"held"`
	// KilledPID is the process of Semel that was killed in the storm.
	KilledPID int     `json:"killed_pid"`
	Seconds   float64 `json:"seconds"`
	// Trouble is what the first sender got that got no successful answer.
	Trouble string `json:"trouble,omitempty"`
	// Faults says in words what was wrong; empty when OK.
	Faults []string `json:"faults"`
}

// judge compares the results with Semel's promises.
func (r *DoorReport) judge() {
	f := faults{}
	f.want("charges", r.Effects, r.Orders)
	f.want("orders charged exactly once", r.Once, r.Orders)
	f.want("senders that stayed and got an answer", r.Answers, r.Sent-r.HungUp)
	f.want("orders whose senders got different answers", r.Differing, 0)
	f.must("Semel was not killed", r.KilledPID != 0)
	f.must("a sender got: "+r.Trouble, r.Trouble == "")
	r.Faults, r.OK = f, len(f) == 0
}

// judge sums up the doors.
func (r *TourReport) judge() {
	r.OK, r.Faults = len(r.Doors) > 0, []string{}
	for i := range r.Doors {
		d := &r.Doors[i]
		r.OK = r.OK && d.OK
		for _, f := range d.Faults {
			r.Faults = append(r.Faults, d.Door+": "+f)
		}
	}
}

// totals sums up the columns.
func (r *TourReport) totals() (sum DoorReport) {
	for i := range r.Doors {
		d := &r.Doors[i]
		sum.Orders, sum.Sent, sum.Effects = sum.Orders+d.Orders, sum.Sent+d.Sent, sum.Effects+d.Effects
		sum.Requests, sum.Held = sum.Requests+d.Requests, sum.Held+d.Held
	}
	return sum
}
