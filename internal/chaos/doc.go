// Package chaos breaks everything around the service at once, and judges what came of
// it.
//
// A run starts two or three processes of 'semel serve' on one store, an upstream that
// knows nothing of keys, and workers in processes of their own. The workers know the
// product by its documents alone: they are clients of the execution API, and callers of
// routes that the proxy guards. While they deliver calls, several times each, a storm
// of faults goes over nodes, workers, the upstream, the store's servers, disks, clocks
// and all networks between them. Then everything is healed, every node is asked after
// every call, and package history holds what everybody has seen against the rules.
//
//	go run ./internal/chaos/cmd/chaos -store redis -seed 7 -duration 4m
//	make prove CHAOS=10m
//
// Where to look:
//
//	job.go       what calls there are, how often they are delivered, how work ends
//	worker.go    what a client does with each answer, by the text of the API
//	api.go       the requests, and how answers are understood
//	wire.go      HTTP that never sends anything twice
//	upstream.go  what the proxy guards, and where effects are counted
//	fault*.go    what can fail, and when; stage_*.go and disk.go for the stores
//	build.go     nodes whose clocks can be moved; serverclock does it for servers
//	settle.go    the questions at the end
//	history/     the rules, the model, and how a history is printed
//
// What the runs promise, and what they can't do, is in docs/chaos.md. The rig runs on
// Linux only; elsewhere this package is empty.
package chaos
