// Package bench measures how fast Semel is on this machine, beside programs without an
// engine or a guard that take turns with it. It has only benchmarks, which start private
// servers. Run them from the root of the repository:
//
//	go test ./bench -run '^$' -bench Store -benchtime 6x -turns.length 2s
//	go test ./bench -run '^$' -bench Records/pebble -benchtime 6x -turns.length 2s -records 1000000
//
// The number before x is how many turns each side takes; -callers, -bytes and -records say
// how much there is. Only ratios within one run say anything: the first side's operations
// per second divided by the other's, as the median over the turns. To compare runs, give
// what several of them print to benchstat.
package bench
