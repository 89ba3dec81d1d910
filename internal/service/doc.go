// Package service is the service: one process that guards upstreams as a reverse proxy,
// gives programs in any language the execution API, and sweeps records that nobody asks
// for. It assembles the other packages according to one configuration, and decides
// nothing about calls itself.
package service
