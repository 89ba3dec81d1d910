package figures

import "time"

// WriteEvery has a test count for longer before it writes.
func (f *Figures) WriteEvery(d time.Duration) { f.every = d }
