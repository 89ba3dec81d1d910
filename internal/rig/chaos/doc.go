// Package chaos is a fault-injection test: it breaks everything around the service at once, and
// checks that the promises hold.
//
// A run starts two or three processes of 'semel serve' on one store, an upstream that ignores
// keys, and workers in separate processes. The workers use only the documented product: they
// are clients of the execution API, and callers of routes that the proxy guards. While they
// deliver calls, several times each, faults hit nodes, workers, the upstream, the store's
// servers, disks, clocks and all networks between them. Then it heals everything, asks every
// node about every call, and checks all observations by the rules of package
// internal/rig/history.
//
//	go test ./internal/rig/chaos -v -run TestChaos -chaos.store redis -chaos.seed 7 -chaos.duration 4m
//	make prove CHAOS=10m
//
// Where to look:
//
//	job.go       what calls there are, how often they are delivered, how work ends
//	worker.go    what a client does with each answer, by the text of the API
//	crew.go      processes of workers, and what they and the upstream tell the rig
//	api.go       the requests, how answers are parsed, and HTTP that sends nothing twice
//	upstream.go  what the proxy guards, and where effects are counted
//	fault*.go    what can fail, and when; ground_*.go and disk.go for the stores
//	build.go     nodes whose clocks can be moved; serverclock does it for servers
//	upgrade.go   an earlier program that is replaced under load
//	calls.go     the calls of a run, and the questions at the end
//
// docs/chaos.md describes what the runs check, and what they can't do. The rig runs on
// Linux only; elsewhere this package is empty.
package chaos
